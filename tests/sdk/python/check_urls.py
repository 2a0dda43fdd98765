# SPDX-License-Identifier: Apache-2.0
"""upload_url and download_url, fetched as anybody would, with no header of the client's. Behind the gateway every
sandbox is secured, so that the URLs are signed; celld in debug mode has no token and its URLs have no signature."""
import json
import re
import time
import urllib.error
import urllib.request

from e2b import InvalidArgumentException

from kit import check, do, eq, fresh_dir, new_sandbox, ok, raises

BOUNDARY = 'the-boundary'
REFUSED = (400, 401, 404)  # by celld, or by a gateway that finds no sandbox with such a signature


def fetch(url, body=None):
    """(status, body) of a GET, or of a form post of `body`."""
    request = urllib.request.Request(url)
    if body is not None:
        part = 'Content-Disposition: form-data; name="file"; filename="from-the-form.txt"\r\n\r\n'
        request.data = f'--{BOUNDARY}\r\n{part}{body}\r\n--{BOUNDARY}--\r\n'.encode()
        request.add_header('Content-Type', f'multipart/form-data; boundary={BOUNDARY}')
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def refused(url, text, body=None):
    status, answer = fetch(url, body)
    eq(status, 401, url)
    ok(text in json.loads(answer)['message'], f'a message with {text!r}', answer)


async def url(function, *arguments, **options):
    return await do(function(*arguments, **options))


@check()
async def up_and_down(s):
    path = await fresh_dir(s) + '/a ž+&.txt'
    status, answer = fetch(await url(s.upload_url, path), 'up')
    eq((status, json.loads(answer)[0]['path']), (200, path))
    eq(fetch(await url(s.download_url, path)), (200, 'up'))
    eq(await do(s.files.read(path)), 'up')


@check(on='gateway')
async def with_expiration(s):
    path = await fresh_dir(s) + '/f'
    eq(fetch(await url(s.upload_url, path, use_signature_expiration=60), 'up')[0], 200)
    eq(fetch(await url(s.download_url, path, use_signature_expiration=60)), (200, 'up'))


@check(on='gateway')
async def expired(s):
    path = await fresh_dir(s) + '/f'
    await do(s.files.write(path, 'x'))
    old = await url(s.download_url, path, use_signature_expiration=1)
    end = int(re.search(r'signature_expiration=(\d+)', old)[1])
    time.sleep(max(0, end + 1.1 - time.time()))  # that much time is the matter here
    refused(old, 'expired')


@check(on='gateway')
async def as_another_user(s):
    path = await fresh_dir(s) + '/f'
    eq(fetch(await url(s.upload_url, path, user='root'), 'up')[0], 200)
    eq((await do(s.files.get_info(path))).owner, 'root')
    eq(fetch(await url(s.download_url, path, user='root')), (200, 'up'))


@check(on='gateway')
async def upload_without_a_path(s):
    # A signature for no path allows any name; it is the form's then.
    status, answer = fetch(await url(s.upload_url, ''), 'up')
    eq(status, 200)
    written = json.loads(answer)[0]
    eq(written['name'], 'from-the-form.txt')
    eq(await do(s.files.read(written['path'])), 'up')
    await do(s.files.remove(written['path']))


@check(on='gateway')
async def tampered(s):
    path = await fresh_dir(s)
    for name in ('f', 'g'):
        await do(s.files.write(f'{path}/{name}', 'secret'))
    signed = await url(s.download_url, f'{path}/f')
    for wrong in (signed.replace('%2Ff&', '%2Fg&').replace('/f&', '/g&'), signed + '&username=root',
                  re.sub(r'signature=v1_.', 'signature=v1_!', signed), re.sub(r'&signature=[^&]*', '', signed)):
        ok(wrong != signed, 'another URL', signed)
        status, answer = fetch(wrong)
        ok(status in REFUSED and 'secret' not in answer, 'a refusal', (wrong, status, answer))


@check(on='gateway')
async def download_is_no_upload(s):
    path = await fresh_dir(s) + '/f'
    await do(s.files.write(path, 'x'))
    status, answer = fetch(await url(s.download_url, path), 'up')
    ok(status in REFUSED, 'a refusal', (status, answer))
    eq(await do(s.files.read(path)), 'x')


@check(on='gateway')
async def each_sandbox_has_its_own():
    first, second = await new_sandbox(), await new_sandbox()
    for sandbox, text in ((first, 'one'), (second, 'two')):
        await do(sandbox.files.write('mine.txt', text))
    eq(fetch(await url(first.download_url, 'mine.txt')), (200, 'one'))
    eq(fetch(await url(second.download_url, 'mine.txt')), (200, 'two'))


@check(on='gateway')
async def missing_file(s):
    path = await fresh_dir(s) + '/no'
    status, answer = fetch(await url(s.download_url, path))
    eq((status, json.loads(answer)['code']), (404, 404))


@check(on='debug')
async def no_expiration_without_a_token(s):
    path = await fresh_dir(s)
    await raises(InvalidArgumentException, lambda: s.download_url(path, use_signature_expiration=10))
    ok('signature' not in await url(s.download_url, path), 'no signature', await url(s.download_url, path))
