# SPDX-License-Identifier: Apache-2.0
"""Watches: the sync client polls, the async client streams."""
import asyncio

from e2b import FilesystemEventType as Event
from e2b import SandboxException, TimeoutException

from kit import ASYNC, check, do, eq, eventually, fresh_dir, ok, raises


class Watch:
    """Either client's watch as one growing list."""

    def __init__(self, sandbox, path, **options):
        self.sandbox, self.path, self.options, self.events = sandbox, path, options, []

    async def __aenter__(self):
        if ASYNC:
            self.handle = await self.sandbox.files.watch_dir(self.path, on_event=self.events.append, **self.options)
        else:
            self.handle = self.sandbox.files.watch_dir(self.path, **self.options)
        return self

    async def __aexit__(self, *_):
        await do(self.handle.stop())

    def poll(self):
        if not ASYNC:
            self.events += self.handle.get_new_events()
        return [(event.name, event.type) for event in self.events]

    async def until(self, *expected):
        async def come():
            return not set(expected) - set(self.poll())

        try:
            await eventually(come, 'the events')
        except AssertionError:
            raise AssertionError(f'expected {expected}, saw {self.poll()}') from None


@check()
async def each_kind(s):
    path = await fresh_dir(s)
    async with Watch(s, path) as watch:
        await do(s.files.write(f'{path}/f', 'x'))
        await watch.until(('f', Event.CREATE), ('f', Event.WRITE))
        await do(s.files.rename(f'{path}/f', f'{path}/g'))
        await watch.until(('f', Event.RENAME), ('g', Event.CREATE))
        await do(s.files.remove(f'{path}/g'))
        await watch.until(('g', Event.REMOVE))
        await do(s.commands.run('touch c; chmod 600 c', cwd=path))
        await watch.until(('c', Event.CREATE), ('c', Event.CHMOD))


@check()
async def order_of_an_upload(s):
    path = await fresh_dir(s)
    async with Watch(s, path) as watch:
        await do(s.files.write(f'{path}/f', 'x'))
        await watch.until(('f', Event.WRITE))
        eq([kind for _, kind in watch.poll()], [Event.CREATE, Event.CHMOD, Event.WRITE])


@check()
async def recursive(s):
    path = await fresh_dir(s)
    await do(s.files.make_dir(f'{path}/sub'))
    async with Watch(s, path, recursive=True) as watch:
        await do(s.files.write(f'{path}/sub/f', 'x'))
        await do(s.files.make_dir(f'{path}/new/deep'))
        await do(s.files.write(f'{path}/new/deep/h', 'x'))
        await watch.until(('sub/f', Event.WRITE), ('new', Event.CREATE), ('new/deep', Event.CREATE),
                          ('new/deep/h', Event.CREATE), ('new/deep/h', Event.WRITE))


@check()
async def not_recursive(s):
    path = await fresh_dir(s)
    await do(s.files.make_dir(f'{path}/sub'))
    async with Watch(s, path) as watch:
        await do(s.files.write(f'{path}/sub/f', 'x'))
        await do(s.files.write(f'{path}/last', 'x'))
        await watch.until(('last', Event.WRITE))
        ok(not [name for name, _ in watch.poll() if name.startswith('sub/')], 'nothing of sub/', watch.poll())


@check()
async def with_entries(s):
    path = await fresh_dir(s)
    async with Watch(s, path, include_entry=True) as watch:
        await do(s.files.write(f'{path}/f', 'xyz'))
        await watch.until(('f', Event.WRITE))
        entries = [event.entry for event in watch.events if event.type == Event.WRITE]
        eq((entries[-1].path, entries[-1].size), (f'{path}/f', 3))
        await do(s.files.remove(f'{path}/f'))
        await watch.until(('f', Event.REMOVE))
        eq([event.entry for event in watch.events if event.type == Event.REMOVE], [None])


@check()
async def odd_names(s):
    path = await fresh_dir(s, ' ž+%')
    names = ['ž d', 'a%b', '😀', 'new\nline']
    async with Watch(s, path) as watch:
        for name in names:
            await do(s.files.write(f'{path}/{name}', 'x'))
        await watch.until(*[(name, Event.CREATE) for name in names])


@check()
async def thousand_files(s):
    path = await fresh_dir(s)
    async with Watch(s, path) as watch:
        await do(s.commands.run('touch $(seq -f f%g 1000)', cwd=path))
        await watch.until(*[(f'f{i}', Event.CREATE) for i in range(1, 1001)])


@check(client='sync')
async def stopped_watch_is_gone(s):
    path = await fresh_dir(s)
    async with Watch(s, path) as watch:
        handle = watch.handle
    await raises(SandboxException, handle.get_new_events)


@check(client='async')
async def stopped_watch_is_silent(s):
    path = await fresh_dir(s)
    first, second = Watch(s, path), Watch(s, path)
    async with second:
        async with first:
            pass
        await do(s.files.write(f'{path}/f', 'x'))
        await second.until(('f', Event.WRITE))
    eq(first.events, [])


@check(client='async')
async def timeout_ends_the_watch(s):
    path = await fresh_dir(s)
    ends = asyncio.Queue()
    await s.files.watch_dir(path, on_event=lambda event: None, on_exit=ends.put, timeout=1)
    eq(type(await asyncio.wait_for(ends.get(), 10)), TimeoutException)
