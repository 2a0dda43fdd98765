# SPDX-License-Identifier: Apache-2.0
"""Plain HTTP as somebody without the client library speaks it."""
import http.client
import json
import os
import urllib.parse


def exchange(method, path, headers, body=None):
    """One request to the gateway. (status, text)"""
    gateway = urllib.parse.urlsplit(os.environ['E2B_API_URL'])
    connection = http.client.HTTPConnection(gateway.hostname, gateway.port, timeout=20)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def get_through(host, path):
    """GET of a sandbox's port, the sandbox found by the host name."""
    return exchange('GET', path, {'Host': host})


def get_api(path):
    """GET of the control plane's without a key."""
    status, text = exchange('GET', path, {})
    return status, json.loads(text)


def to_sandbox(sandbox_id, method, path, headers, body):
    routed = {'E2b-Sandbox-Id': sandbox_id, 'E2b-Sandbox-Port': '49983', 'Content-Type': 'application/json'}
    status, text = exchange(method, path, {**routed, **headers}, body)
    return status, json.loads(text)


def list_processes(sandbox_id, headers):
    """The status alone."""
    return to_sandbox(sandbox_id, 'POST', '/process.Process/List', headers, '{}')[0]
