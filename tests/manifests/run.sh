#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh CELLD BUILD-DIR: the YAML of README.md. Kubernetes' schemas come from PyPI (kubernetes-validate), agent-sandbox's from its Go module; what
# cannot be downloaded is left out, aloud, and the rest is checked all the same.
set -eu

celld=$1 build=$2
venv=$build/manifests-venv
crds=
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import kubernetes_validate' 2>/dev/null ||
	"$venv/bin/pip" -q install 'kubernetes-validate==1.37.0' ||
	echo "manifests: LEFT OUT, the Python packages could not be downloaded"
if command -v go >/dev/null; then
	crds=$(cd "$build" && go mod download -json sigs.k8s.io/agent-sandbox@v0.1.1 2>/dev/null |
		sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p') || crds=
fi
[ -n "$crds" ] || echo "manifests: LEFT OUT, agent-sandbox's schema could not be downloaded"
"$venv/bin/python" -c 'import kubernetes_validate' 2>/dev/null || exit 0
exec "$venv/bin/python" tests/manifests/check.py README.md "$celld" "${crds:+$crds/k8s/crds}"
