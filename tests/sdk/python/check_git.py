# SPDX-License-Identifier: Apache-2.0
"""The client's git module, which parses what git prints."""
from kit import check, do, eq, fresh_dir


@check()
async def commit_and_status(s):
    path = await fresh_dir(s)
    await do(s.git.init(path, initial_branch='main'))
    await do(s.files.write(f'{path}/r', 'x'))
    status = await do(s.git.status(path))
    eq((status.current_branch, status.is_clean), ('main', False))
    await do(s.git.add(path))
    await do(s.git.commit(path, 'first', author_name='A B', author_email='a@b.c'))
    eq((await do(s.git.status(path))).is_clean, True)


@check()
async def branches(s):
    path = await fresh_dir(s)
    await do(s.git.init(path, initial_branch='main'))
    await do(s.git.commit(path, 'first', author_name='A', author_email='a@b.c', allow_empty=True))
    await do(s.git.create_branch(path, 'side'))
    seen = await do(s.git.branches(path))
    eq((sorted(seen.branches), seen.current_branch), (['main', 'side'], 'side'))
