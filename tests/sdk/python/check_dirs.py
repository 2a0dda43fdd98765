# SPDX-License-Identifier: Apache-2.0
"""Directories and entries: make, list, info, rename, remove, exists, links."""
import time

from e2b import FileType

from kit import SHARED, check, do, eq, fresh_dir, ok


def listing(path, entries):
    return [entry.path[len(path) + 1:] + ('/' if entry.type == FileType.DIR else '') for entry in entries]


@check()
async def make(s):
    path = await fresh_dir(s)
    eq(await do(s.files.make_dir(f'{path}/a/b/c')), True)
    eq(await do(s.files.make_dir(f'{path}/a/b/c')), False, 'once more')
    info = await do(s.files.get_info(f'{path}/a/b'))
    eq((info.type, info.owner, info.permissions, info.mode, info.name, info.path),
       (FileType.DIR, SHARED['user'], 'drwxr-xr-x', 0o755, 'b', f'{path}/a/b'))


@check()
async def list_by_depth(s):
    path = await fresh_dir(s)
    await do(s.files.make_dir(f'{path}/a/b/c'))
    await do(s.files.make_dir(f'{path}/z'))
    await do(s.files.write(f'{path}/f', ''))
    await do(s.files.write(f'{path}/a/g', '12'))
    for depth, expected in ((1, ['a/', 'f', 'z/']), (2, ['a/', 'a/b/', 'a/g', 'f', 'z/']),
                            (9, ['a/', 'a/b/', 'a/b/c/', 'a/g', 'f', 'z/'])):
        eq(listing(path, await do(s.files.list(path, depth=depth))), expected, f'depth {depth}')
    eq(listing(path, await do(s.files.list(path))), ['a/', 'f', 'z/'])
    eq(await do(s.files.list(f'{path}/z')), [])


@check()
async def info_of_a_file(s):
    path = await fresh_dir(s)
    await do(s.files.write(f'{path}/g', '12'))
    [entry] = await do(s.files.list(path))
    info = await do(s.files.get_info(f'{path}/g'))
    for seen in (entry, info):
        eq((seen.name, seen.path, seen.type, seen.size, seen.mode, seen.permissions, seen.owner, seen.symlink_target),
           ('g', f'{path}/g', FileType.FILE, 2, 0o644, '-rw-r--r--', SHARED['user'], None))
        ok(abs(seen.modified_time.timestamp() - time.time()) < 60, 'the time of now', seen.modified_time)


@check()
async def list_of_1000(s):
    path = await fresh_dir(s)
    await do(s.commands.run('touch $(seq -f f%g 1000)', cwd=path))
    eq(len(await do(s.files.list(path))), 1000)


@check()
async def links(s):
    path = await fresh_dir(s)
    await do(s.files.write(f'{path}/t', '1'))
    await do(s.commands.run('ln -s t l; ln -s . d; ln -s nowhere broken; ln -s loop loop', cwd=path))
    info = await do(s.files.get_info(f'{path}/l'))
    eq((info.type, info.symlink_target, info.name), (FileType.FILE, f'{path}/t', 'l'))
    eq(await do(s.files.read(f'{path}/l')), '1')
    seen = {entry.name: entry.type for entry in await do(s.files.list(path, depth=5))}
    eq(seen, {'t': FileType.FILE, 'l': FileType.FILE, 'd': FileType.DIR})  # the client drops what leads nowhere
    await do(s.files.remove(f'{path}/l'))
    eq(await do(s.files.exists(f'{path}/t')), True, 'the target')


@check()
async def rename(s):
    path = await fresh_dir(s)
    await do(s.files.write(f'{path}/o', '1'))
    moved = await do(s.files.rename(f'{path}/o', f'{path}/new/deep/p'))
    eq((moved.name, moved.path, moved.type), ('p', f'{path}/new/deep/p', FileType.FILE))
    eq(await do(s.files.exists(f'{path}/o')), False)
    eq((await do(s.files.rename(f'{path}/new', f'{path}/dir'))).type, FileType.DIR)
    eq(await do(s.files.read(f'{path}/dir/deep/p')), '1')


@check()
async def remove(s):
    path = await fresh_dir(s)
    await do(s.files.write(f'{path}/a/b/c', 'x'))
    await do(s.files.remove(f'{path}/a/b/c'))
    eq(await do(s.files.exists(f'{path}/a/b/c')), False)
    await do(s.files.remove(f'{path}/a'))
    eq(await do(s.files.exists(f'{path}/a')), False)
    await do(s.files.remove(f'{path}/a'))  # nothing there is no error
    eq(await do(s.files.exists(path)), True)


@check()
async def exists(s):
    path = await fresh_dir(s)
    eq(await do(s.files.exists(path)), True)
    eq(await do(s.files.exists(f'{path}/no')), False)
    eq(await do(s.files.exists(f'{path}/no/deeper')), False)
