# SPDX-License-Identifier: Apache-2.0
"""The bill of materials of one binary, as SPDX 2.3, and the notices of what is in it.
  sbom.py write BINARY MAP ARCH SYSROOT   from the linker's MAP: what was really linked in; a package without a known licence is an error
  sbom.py check BINARY                    BINARY.spdx.json is whole, and is of this binary
SYSROOT ("" for none) has a table of its files' packages, files.tsv; whatever is not in it is asked of dpkg."""

import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.parse
import uuid

# By Debian's source package: SPDX's name of the licence of what is linked (not of its tests and tools).
LICENCES = {
    "check": "LGPL-2.1-or-later",
    "gcc": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "glibc": "LGPL-2.1-or-later",
    "jansson": "MIT",
    "libb64": "LicenseRef-libb64-public-domain",
    "libev": "BSD-2-Clause OR GPL-2.0-or-later",
    "libmd": "BSD-3-Clause",
    "libseccomp": "LGPL-2.1-only",
    "linux": "GPL-2.0-only WITH Linux-syscall-note",
    "node-undici": "MIT",
    "protobuf-c": "BSD-2-Clause",
    "uthash": "BSD-1-Clause",
    "zlib": "Zlib",
}
NAMES = {"node-undici": "llhttp", "gcc": "libgcc"}
PUBLIC_DOMAIN = """The author of libb64 has dedicated it to the public domain (Copyright-Only Dedication, based on United States law, or Public
Domain Certification): it may be freely reproduced, distributed, transmitted, used, modified, built upon, or otherwise exploited by anyone for
any purpose, commercial or non-commercial, and in any way."""


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def source_name(name):
    """gcc-12, gcc-12-cross-ports and cross-toolchain-base-ports carry versions of the same in their names."""
    if name.startswith("gcc-"):
        return "gcc"
    return "glibc" if name.startswith("cross-toolchain-base") else name


class Files:
    """Which package, of which version, a file of the system or of the sysroot is of."""

    def __init__(self, sysroot):
        self.sysroot = sysroot
        self.table = {}
        if sysroot:
            with open(os.path.join(sysroot, "files.tsv"), encoding="utf-8") as f:
                for line in f:
                    path, *package = line.rstrip("\n").split("\t")
                    self.table[path] = tuple(package)

    @functools.lru_cache(maxsize=None)
    def installed(self, path):
        # What is below /lib may be recorded so, or below /usr/lib, where it is.
        for known in (path, path.removeprefix("/usr")):
            try:
                package = run("dpkg-query", "-S", known).split(": ")[0].split(",")[0]
            except subprocess.CalledProcessError:
                continue
            fields = "${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}"
            return tuple(run("dpkg-query", "-W", "-f", fields, package).split("\t"))
        sys.exit(f"sbom: {path} is of no package")

    def package(self, path):
        """(package, version, architecture, source, its version)"""
        real = os.path.realpath(path)
        if self.sysroot and real.startswith(os.path.realpath(self.sysroot) + "/"):
            return self.table[os.path.relpath(real, os.path.realpath(self.sysroot))]
        return self.installed(real)


def linked(map_path):
    """The map's files: {archive: {members}}, and the object files that were given as such."""
    archives, objects = {}, set()
    with open(map_path, encoding="utf-8", errors="replace") as f:
        text = f.read()
    head = text[: text.index("\nMemory Configuration")]
    for archive, member in re.findall(r"^(\S+\.a)\((\S+)\)$", head, re.M):
        archives.setdefault(archive, set()).add(member)
    for path in re.findall(r"^LOAD (\S+\.o)$", text, re.M):
        objects.add(path)
    if not archives or not objects:
        sys.exit(f"sbom: {map_path} is no linker's map")
    return archives, objects


def headers():
    """Libraries that are nothing but headers, where our sources take them in."""
    for folder, _, names in os.walk("daemon"):
        for name in names:
            if name.endswith((".c", ".h")):
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    if re.search(r"^#include <ut(hash|list)\.h>$", f.read(), re.M):
                        return ["/usr/include/uthash.h"]
    return []


def materials(map_path, sysroot):
    """{package: (its parts, how it is in)}"""
    files = Files(sysroot)
    archives, objects = linked(map_path)
    parts = {}

    def add(path, part, how):
        parts.setdefault(files.package(path), [set(), how])[0].add(part)

    for archive, members in archives.items():
        add(archive, f"{os.path.basename(archive)} ({len(members)} members)", "STATIC_LINK")
    for path in objects:
        if os.path.isabs(path) and "/obj" not in path:
            add(path, os.path.basename(path), "STATIC_LINK")
        elif "/llhttp/" in path:
            add("/usr/share/llhttp/" + os.path.basename(path).replace(".o", ".c"), os.path.basename(path), "CONTAINS")
    for path in headers():
        add(sysroot + path, os.path.basename(path), "CONTAINS")
    return parts


def distribution():
    with open("/etc/os-release", encoding="utf-8") as f:
        fields = dict(line.rstrip("\n").replace('"', "").split("=", 1) for line in f if "=" in line)
    return f"{fields['ID']}-{fields.get('VERSION_ID', 'unstable')}"


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def describe(package, parts, spdxid):
    name, version, arch, source, source_version = package
    short = source_name(source)
    if short not in LICENCES:
        sys.exit(f"sbom: {name} is linked in, and its licence is not known here")
    quoted = urllib.parse.quote(version, safe="")
    origin = f"Debian's source package {source} {source_version}"
    if arch == "source" and "-" not in version:
        origin = f"upstream's {source} {version} as Debian has it, WITHOUT Debian's patches"
    return {
        "SPDXID": spdxid,
        "name": NAMES.get(short, short),
        "versionInfo": version,
        "supplier": "Organization: Debian",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": LICENCES[short],
        "licenseDeclared": LICENCES[short],
        "copyrightText": "NOASSERTION",
        "sourceInfo": f"{', '.join(sorted(parts))} of {name}:{arch}, from {origin}",
        "primaryPackagePurpose": "LIBRARY",
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": f"pkg:deb/debian/{name}@{quoted}?arch={arch}&distro={distribution()}",
            }
        ],
    }


def document(binary, parts):
    base = os.path.basename(binary)
    sha = digest(binary)
    version = base.split("-")[1]
    packages = [
        {
            "SPDXID": "SPDXRef-celld",
            "name": "celld",
            "versionInfo": version,
            "packageFileName": base,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
            "checksums": [{"algorithm": "SHA256", "checksumValue": sha}],
            "licenseConcluded": "Apache-2.0",
            "licenseDeclared": "Apache-2.0",
            "copyrightText": "NOASSERTION",
            "primaryPackagePurpose": "APPLICATION",
        }
    ]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-celld")]
    for package in sorted(parts):
        spdxid = "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]", "-", package[0])
        packages.append(describe(package, parts[package][0], spdxid))
        relations.append(("SPDXRef-celld", parts[package][1], spdxid))
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"])))
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": base,
        "documentNamespace": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, base + sha)}",
        "creationInfo": {"created": created, "creators": ["Tool: celld-sbom"]},
        "hasExtractedLicensingInfos": [
            {"licenseId": "LicenseRef-libb64-public-domain", "name": "libb64's dedication", "extractedText": PUBLIC_DOMAIN}
        ],
        "documentDescribes": ["SPDXRef-celld"],
        "packages": packages,
        "relationships": [
            {"spdxElementId": a, "relationshipType": how, "relatedSpdxElement": b} for a, how, b in relations
        ],
    }


def notices(parts, sysroot):
    """Each package's file of copyrights and licences, whole, and the licences that those only point to."""
    texts = [("celld", "LICENSE")]
    for name, *_ in sorted(parts):
        paths = [f"{root}/usr/share/doc/{name}/copyright" for root in (sysroot, "")]
        texts.append((name, next(filter(os.path.exists, paths))))
    for licence in ("LGPL-2.1", "GPL-3", "GPL-2"):
        texts.append((licence, f"/usr/share/common-licenses/{licence}"))
    for name, path in texts:
        with open(path, encoding="utf-8") as f:
            yield f"{'=' * 20} {name} {'=' * 20}\n{f.read()}\n"


def write(binary, map_path, sysroot):
    parts = materials(map_path, sysroot)
    with open(binary + ".spdx.json", "w", encoding="utf-8") as f:
        json.dump(document(binary, parts), f, indent=1, ensure_ascii=False)
        f.write("\n")
    with open(binary + ".notices.txt", "w", encoding="utf-8") as f:
        f.writelines(notices(parts, sysroot))


# What no binary of celld can be without: a bill that lacks one was made from the wrong map.
MUST = {"celld", "glibc", "jansson", "libb64", "libev", "libgcc", "libmd", "libseccomp", "llhttp", "protobuf-c", "uthash", "zlib"}


def check(binary):
    """What SPDX 2.3 demands of the fields that are used here, and that it is true."""
    with open(binary + ".spdx.json", encoding="utf-8") as f:
        doc = json.load(f)
    wrong = []

    def want(good, what):
        if not good:
            wrong.append(what)

    want(doc["spdxVersion"] == "SPDX-2.3" and doc["dataLicense"] == "CC0-1.0", "not SPDX 2.3")
    want(doc["SPDXID"] == "SPDXRef-DOCUMENT", "the document's id")
    want(re.fullmatch(r"[a-z]+:[^#\s]+", doc["documentNamespace"]), "the name space is no URI")
    want(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", doc["creationInfo"]["created"]), "the date")
    want(all(re.match(r"(Tool|Person|Organization): ", who) for who in doc["creationInfo"]["creators"]), "the creators")
    ids = [p["SPDXID"] for p in doc["packages"]] + ["SPDXRef-DOCUMENT"]
    want(len(ids) == len(set(ids)), "an id twice")
    known = {licence for licence in LICENCES.values()} | {"Apache-2.0"}
    for p in doc["packages"]:
        name = p["name"]
        want(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", p["SPDXID"]), f"{name}: id")
        want(p["licenseConcluded"] in known and p["licenseDeclared"] in known, f"{name}: licence")
        want(p["versionInfo"] and p["downloadLocation"] and p["filesAnalyzed"] is False, f"{name}: a field that must be")
        for ref in p.get("externalRefs", []):
            want(re.fullmatch(r"pkg:deb/debian/[a-z0-9.+-]+@[^\s@]+\?arch=\w+&distro=[a-z0-9.-]+", ref["referenceLocator"]), f"{name}: purl")
    used = {p["SPDXID"] for p in doc["packages"]}
    for r in doc["relationships"]:
        want(r["spdxElementId"] in ids and r["relatedSpdxElement"] in ids, f"a relationship to nothing: {r}")
        used.discard(r["relatedSpdxElement"])
    want(not used, f"related to nothing: {used}")
    extracted = {x["licenseId"] for x in doc["hasExtractedLicensingInfos"]}
    refs = set(re.findall(r"LicenseRef-[A-Za-z0-9.-]+", json.dumps(doc["packages"])))
    want(refs == extracted, f"licences of its own: {refs} used, {extracted} told")
    names = {p["name"] for p in doc["packages"]}
    want(MUST <= names, f"lacks {MUST - names}")
    want(doc["packages"][0]["checksums"][0]["checksumValue"] == digest(binary), "of another binary")
    for what in wrong:
        print(f"sbom: {binary}: {what}")
    print(f"sbom: {os.path.basename(binary)}: {len(doc['packages']) - 1} packages linked in, {len(wrong)} wrong")
    return 1 if wrong else 0


if sys.argv[1] == "check":
    sys.exit(check(sys.argv[2]))
write(sys.argv[2], sys.argv[3], sys.argv[5])
