# SPDX-License-Identifier: Apache-2.0
"""check.py README CELLD CRDS: each YAML block of the README against its published schema, strictly (an unknown key is an error), and every option
and variable in it against `celld --help`. CRDS is a directory of custom resource definitions, or empty. Says what it checked; exit status 1 if anything is wrong."""

import copy
import glob
import re
import subprocess
import sys

import jsonschema
import kubernetes_validate
import yaml

VERSION = "1.35"


def blocks(readme):
    with open(readme, encoding="utf-8") as f:
        for text in re.findall(r"^```yaml\n(.*?)^```$", f.read(), re.S | re.M):
            yield from yaml.safe_load_all(text)


def strict(schema):
    """A CRD's schema, with unknown keys refused wherever the properties are told."""
    if isinstance(schema, dict):
        if schema.get("properties") and "x-kubernetes-preserve-unknown-fields" not in schema:
            schema.setdefault("additionalProperties", False)
        if schema.get("x-kubernetes-int-or-string"):
            schema.pop("anyOf", None)
            schema["type"] = ["integer", "string"]
        for value in schema.values():
            strict(value)
    elif isinstance(schema, list):
        for value in schema:
            strict(value)
    return schema


def crd_schemas(directory):
    found = {}
    for name in glob.glob(directory + "/*.yaml"):
        with open(name, encoding="utf-8") as f:
            crd = yaml.safe_load(f)
        for version in crd["spec"]["versions"]:
            schema = strict(copy.deepcopy(version["schema"]["openAPIV3Schema"]))
            schema["properties"]["metadata"] = {"type": "object"}
            found[crd["spec"]["group"] + "/" + version["name"], crd["spec"]["names"]["kind"]] = schema
    return found


def pods(doc):
    """The pod specs in a manifest."""
    spec = doc["spec"]
    found = spec.get("podTemplate", {}).get("spec") if doc["kind"] != "Pod" else spec
    if found:
        yield found


def options_used(container):
    words = container.get("command", []) + container.get("args", [])
    if "ctl" in words:
        words = words[: words.index("ctl")]
    yield from (w.split("=")[0] for w in words if w.startswith("--"))
    yield from (e["name"] for e in container.get("env", []) if e["name"].startswith("CELLD_"))


def habits(spec):
    """What these pages promise of every pod."""
    for c in spec.get("initContainers", []) + spec["containers"]:
        if not re.search(r"@sha256:[0-9a-f]{64}$", c["image"]):
            yield c["name"] + ": the image is not pinned by its digest"
        if c.get("imagePullPolicy") != "IfNotPresent":
            yield c["name"] + ": would pull an image that is there"
    for c in spec["containers"]:
        for probe in ("readinessProbe", "livenessProbe"):
            if probe not in c:
                yield c["name"] + ": no " + probe
        if "limits" not in c.get("resources", {}):
            yield c["name"] + ": no resource limits"


def check(doc, crds, known):
    key = doc["apiVersion"], doc["kind"]
    if key in crds:
        for error in jsonschema.Draft7Validator(crds[key]).iter_errors(doc):
            yield "/".join(map(str, error.absolute_path)) + ": " + error.message
    elif "." in doc["apiVersion"]:
        print(f"  {doc['kind']} {doc['metadata']['name']}: its schema was LEFT OUT, the pod in it is checked")
    else:
        try:
            kubernetes_validate.validate(doc, VERSION, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield error.message
    for spec in pods(doc):
        if key[1] != "Pod":  # Kubernetes checks what the template becomes
            try:
                kubernetes_validate.validate(
                    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}, VERSION, strict=True
                )
            except kubernetes_validate.ValidationError as error:
                yield error.message
        yield from habits(spec)
        for container in spec["containers"]:
            for name in options_used(container):
                if name not in known:
                    yield f"{container['name']}: celld has no {name}"


def main():
    readme, celld, crd_dir = sys.argv[1:]
    text = subprocess.run([celld, "--help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"--[a-z-]+|CELLD_[A-Z_]+", text))
    crds = crd_schemas(crd_dir) if crd_dir else {}
    wrong = count = 0
    for doc in blocks(readme):
        count += 1
        errors = list(check(doc, crds, known))
        print(f"  {doc['kind']} {doc['metadata']['name']}: {'; '.join(errors) or 'valid'}")
        wrong += len(errors)
    if count < 3:
        print(f"  only {count} manifests in {readme}")
        wrong += 1
    print(f"manifests: {count} checked, {wrong} wrong")
    sys.exit(1 if wrong else 0)


main()
