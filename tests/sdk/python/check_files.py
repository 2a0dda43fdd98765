# SPDX-License-Identifier: Apache-2.0
"""files.read and files.write: text, bytes, streams, sizes, names, metadata."""
import hashlib
import io
import os

from e2b import FileType

from kit import ASYNC, SHARED, check, do, eq, eventually, fresh_dir, joined, ok, parallel

NAMES = ['ž ď.txt', '日本語', '😀', "q'u\"o", 'a&b=c', 'a+b', 'a%20b', '100%', 'sp  ace ', ' lead', '#hash', '?q',
         'back\\slash', 'semi;colon', 'new\nline', 'tab\t', '-dash', '.hidden', '*', 'x' * 255, '{b}', 'com,ma',
         'e\u0301', '@', '<t>', 'a:b', '..x', '...']
MEBI = 1 << 20


@check()
async def text(s):
    path = await fresh_dir(s)
    written = await do(s.files.write(f'{path}/a/b.txt', 'héllo\n'))
    eq((written.name, written.path, written.type), ('b.txt', f'{path}/a/b.txt', FileType.FILE))
    eq(await do(s.files.read(f'{path}/a/b.txt')), 'héllo\n')
    await do(s.files.write(f'{path}/a/b.txt', 'x'))
    eq(await do(s.files.read(f'{path}/a/b.txt')), 'x', 'after an overwrite')


@check()
async def relative_to_the_home(s):
    name = os.path.basename(await fresh_dir(s)) + '.txt'
    written = await do(s.files.write(name, 'r'))
    try:
        eq(written.path, f"{SHARED['home']}/{name}")
        eq(await do(s.files.read(f'~/{name}')), 'r')
        eq(await do(s.files.read(written.path)), 'r')
    finally:
        await do(s.files.remove(written.path))


@check()
async def every_byte(s):
    path = await fresh_dir(s) + '/b'
    data = bytes(range(256)) * 1000
    await do(s.files.write(path, data))
    eq(bytes(await do(s.files.read(path, format='bytes'))), data)
    eq(await joined(await do(s.files.read(path, format='stream'))), data)


@check()
async def empty(s):
    path = await fresh_dir(s) + '/e'
    for options in ({}, {'use_octet_stream': True}, {'gzip': True}):
        await do(s.files.write(path, 'x'))
        await do(s.files.write(path, '', **options))
        eq(await do(s.files.read(path)), '', f'{options}')
        eq(bytes(await do(s.files.read(path, format='bytes'))), b'', f'{options} bytes')
        eq(await joined(await do(s.files.read(path, format='stream'))), b'', f'{options} stream')
        eq((await do(s.files.get_info(path))).size, 0, f'{options} size')


async def sum_in_sandbox(s, path):
    return (await do(s.commands.run(f"sha256sum <'{path}'"))).stdout.split()[0]


@check(limit=90)
async def large_upload(s):
    path = await fresh_dir(s) + '/big'
    data = os.urandom(MEBI) * 64
    expected = hashlib.sha256(data).hexdigest()
    for form in (data, io.BytesIO(data)):  # a multipart form, a streamed body
        await do(s.files.write(path, form))
        eq((await do(s.files.get_info(path))).size, 64 * MEBI)
        eq(await sum_in_sandbox(s, path), expected)
        await do(s.files.remove(path))


@check(limit=90)
async def large_download(s):
    path = await fresh_dir(s) + '/big'
    await do(s.commands.run(f"head -c {64 * MEBI} /dev/urandom >'{path}'"))
    expected = await sum_in_sandbox(s, path)
    if ASYNC:
        data = await do(s.files.read(path, format='bytes'))
    else:
        data = await joined(s.files.read(path, format='stream'))
    eq((len(data), hashlib.sha256(data).hexdigest()), (64 * MEBI, expected))


@check()
async def gzip(s):
    path = await fresh_dir(s) + '/g'
    data = b'abc\n' * 500000
    await do(s.files.write(path, data, gzip=True))
    eq((await do(s.files.get_info(path))).size, len(data))
    ok(bytes(await do(s.files.read(path, format='bytes', gzip=True))) == data, 'the same bytes', 'others')


async def write_odd_names(s, **options):
    path = await fresh_dir(s)
    for name in NAMES:
        written = await do(s.files.write(f'{path}/{name}', name, **options))
        eq((written.name, written.path), (name, f'{path}/{name}'))
        eq(await do(s.files.read(f'{path}/{name}')), name, name)
        eq((await do(s.files.get_info(f'{path}/{name}'))).name, name)
    eq(sorted(entry.name for entry in await do(s.files.list(path))), sorted(NAMES))


@check()
async def odd_names(s):
    await write_odd_names(s)


@check()
async def odd_names_as_octets(s):
    await write_odd_names(s, use_octet_stream=True)


@check()
async def odd_names_in_one_request(s):
    # In a multipart head browsers and clients write these three percent-encoded, and nobody decodes them.
    path = await fresh_dir(s)
    files = [{'path': f'{path}/{name}', 'data': name} for name in NAMES]
    kept = {name: name.replace('"', '%22').replace('\n', '%0A').replace('\t', '%09') for name in NAMES}
    written = await do(s.files.write_files(files))
    eq([w.path for w in written], [f'{path}/{kept[name]}' for name in NAMES])
    for name in NAMES:
        eq(await do(s.files.read(f'{path}/{kept[name]}')), name)


@check()
async def many_in_one_request(s):
    path = await fresh_dir(s)
    files = [{'path': f'{path}/{i % 7}/f{i}', 'data': b'%d' % i * i if i % 2 else str(i)} for i in range(200)]
    written = await do(s.files.write_files(files))
    eq([w.path for w in written], [file['path'] for file in files])
    for i in (0, 1, 150, 199):
        eq(await do(s.files.read(f'{path}/{i % 7}/f{i}')), str(i) * (i if i % 2 else 1))
    streams = [{'path': f'{path}/s{i}', 'data': io.BytesIO(b's%d' % i)} for i in range(10)]
    eq(len(await do(s.files.write_files(streams))), 10)
    eq(await do(s.files.read(f'{path}/s9')), 's9')
    eq(await do(s.files.write_files([])), [])


def pieces(count, broken=False):
    """An iterable of byte pieces in the client's flavour."""
    data = [b'c%02d' % i for i in range(count)]

    async def async_pieces():
        for piece in data:
            yield piece
        if broken:
            raise ValueError('the source broke')

    def sync_pieces():
        yield from data
        if broken:
            raise ValueError('the source broke')

    return async_pieces() if ASYNC else sync_pieces()


@check()
async def iterable(s):
    path = await fresh_dir(s) + '/it'
    await do(s.files.write(path, pieces(20)))
    eq(await do(s.files.read(path)), ''.join('c%02d' % i for i in range(20)))


@check()
async def iterable_that_breaks(s):
    path = await fresh_dir(s)
    await do(s.files.write(f'{path}/old', 'old'))
    for name in ('new', 'old'):
        try:
            await do(s.files.write(f'{path}/{name}', pieces(3, broken=True)))
        except Exception:
            pass
        else:
            raise AssertionError('expected an error, saw the upload accepted')
    # The connection is cut after the client gave up; how soon the daemon hears of it is not ours to know.
    async def only_old():
        return [entry.name for entry in await do(s.files.list(path))] == ['old']

    await eventually(only_old, 'only the old file')
    eq(await do(s.files.read(f'{path}/old')), 'old')


@check()
async def metadata(s):
    path = await fresh_dir(s)
    wanted = {'key-a': 'v 1', 'b': 'z'}
    written = await do(s.files.write(f'{path}/m', 'x', metadata={'Key-A': 'v 1', 'b': 'z'}))
    eq(written.metadata, wanted)
    eq((await do(s.files.get_info(f'{path}/m'))).metadata, wanted)
    eq((await do(s.files.rename(f'{path}/m', f'{path}/n'))).metadata, wanted)
    eq([entry.metadata for entry in await do(s.files.list(path))], [wanted])
    await do(s.files.write(f'{path}/n', 'x'))
    ok(not (await do(s.files.get_info(f'{path}/n'))).metadata, 'no metadata after a plain write', 'some')


@check()
async def metadata_of_many(s):
    path = await fresh_dir(s)
    files = [{'path': f'{path}/x1', 'data': 'a'}, {'path': f'{path}/x2', 'data': 'b'}]
    written = await do(s.files.write_files(files, metadata={'k': 'v'}))
    eq([w.metadata for w in written], [{'k': 'v'}] * 2)


@check()
async def as_root(s):
    path = await fresh_dir(s) + '/r'
    await do(s.files.write(path, 'r', user='root'))
    info = await do(s.files.get_info(path, user='root'))
    eq((info.owner, info.group), ('root', 'root'))
    eq(await do(s.files.read(path, user='root')), 'r')
    eq((await do(s.files.get_info('.', user='root'))).path, '/root', "relative to root's home")


@check()
async def owner_is_the_default_user(s):
    path = await fresh_dir(s)
    await do(s.files.write(f'{path}/d/f', 'x'))
    for name in ('d', 'd/f'):
        eq((await do(s.files.get_info(f'{path}/{name}'))).owner, SHARED['user'], name)
    eq((await do(s.commands.run('cat d/f && echo y >>d/f', cwd=path))).stdout, 'x')


@check()
async def files_of_the_kernel(s):
    ok('cpu' in await do(s.files.read('/proc/stat')), 'the text of /proc/stat', 'none')
    eq((await do(s.files.get_info('/proc/self/status'))).size, 0)


@check()
async def at_once_to_one_name(s):
    path = await fresh_dir(s) + '/same'
    contents = [str(i) * 40000 for i in range(10)]
    await do(s.files.write(path, 'old'))
    await parallel(*[lambda c=c: s.files.write(path, c) for c in contents])
    ok(await do(s.files.read(path)) in contents, 'one of the contents whole', 'a mix')
