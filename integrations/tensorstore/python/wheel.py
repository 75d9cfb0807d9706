#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""wheel.py TENSORSTORE MODULE LIBPENSTOCK FOLDER: packs a wheel of TensorStore's Python package, with another module in it.

TENSORSTORE is its source distribution, unpacked; libpenstock lies beside the module, which looks for it there. The version
says that the wheel is not TensorStore's own, and pip takes it for the same package. Prints the wheel's name.
"""
from __future__ import annotations

import base64
import email
import hashlib
import pathlib
import sys
import sysconfig
import zipfile

PACKAGE_FILES = ("__init__.py", "__init__.pyi", "py.typed")
REQUIRES = ("numpy>=2", "ml_dtypes>=0.5.0")  # the first as the headers that it is compiled with
TIME = (1980, 1, 1, 0, 0, 0)  # equal contents make equal wheels


def record(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def main() -> None:
    source, module, library, folder = map(pathlib.Path, sys.argv[1:])
    version = email.message_from_bytes((source / "PKG-INFO").read_bytes())["Version"] + "+penstock"
    interpreter = f"cp{sys.version_info.major}{sys.version_info.minor}"
    tag = f"{interpreter}-{interpreter}-{sysconfig.get_platform().replace('-', '_')}"
    info = f"tensorstore-{version}.dist-info"
    metadata = "".join(f"Requires-Dist: {name}\n" for name in REQUIRES)
    files = {f"tensorstore/{name}": (source / "python/tensorstore" / name).read_bytes() for name in PACKAGE_FILES}
    files |= {
        "tensorstore/_tensorstore.so": module.read_bytes(),
        f"tensorstore/{library.name}": library.read_bytes(),
        f"{info}/licenses/LICENSE": (source / "LICENSE").read_bytes(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tensorstore\nVersion: {version}\n{metadata}".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: penstock\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    listing = f"{info}/RECORD"
    files[listing] = ("".join(record(*file) for file in files.items()) + f"{listing},,\n").encode()
    wheel = folder / f"tensorstore-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, TIME), data, zipfile.ZIP_DEFLATED)
    print(wheel)


if __name__ == "__main__":
    main()
