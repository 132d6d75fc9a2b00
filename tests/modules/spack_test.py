# SPDX-License-Identifier: Apache-2.0
"""Reads Spack's recipes with a fake Spack: the names that they use must exist, and trireme's dependencies and check() must match +tests.

usage: spack_test.py FOLDER_OF_PACKAGES
"""
import contextlib
import pathlib
import sys
import types

declared, calls = [], []


class Package:
    def define(self, name, value):
        return f"{name}={value}"

    def define_from_variant(self, name, variant):
        return f"{name}={self.spec.satisfies('+' + variant)}"


class CudaPackage:
    cuda_arch_values = ("80", "90")


class Spec:
    def __init__(self, *variants):
        self.has = variants
        self.variants = {"cuda_arch": types.SimpleNamespace(value=("90",))}

    def satisfies(self, variant):
        return variant in self.has

    def __getitem__(self, name):
        return types.SimpleNamespace(prefix=f"/{name}", command=types.SimpleNamespace(path=f"/{name}/bin"))


@contextlib.contextmanager
def working_dir(folder):
    calls.append(("enter", folder))
    yield
    calls.append(("leave", folder))


def main(folder):
    spack = types.ModuleType("spack.package")
    for name in ("version", "license", "variant", "depends_on", "conflicts", "generator", "install_tree"):
        setattr(spack, name, lambda *words, directive=name, **options: declared.append((directive, words, options)))
    spack.when = lambda condition: contextlib.nullcontext()
    spack.ctest = lambda *words: calls.append(("ctest", words))
    spack.Package = spack.CMakePackage = Package
    spack.CudaPackage, spack.working_dir = CudaPackage, working_dir
    sys.modules.update({"spack": types.ModuleType("spack"), "spack.package": spack})

    recipes = {path.parent.name: path for path in sorted(folder.glob("*/package.py"))}
    scopes = {}
    for name, path in recipes.items():
        scopes[name] = {}
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), scopes[name])
    trireme = scopes["trireme"]["Trireme"]()
    trireme.build_directory = "/build"

    trireme.spec = Spec()
    trireme.check()
    assert not calls, calls
    assert not any("TRIREME_PYTHON" in argument for argument in trireme.cmake_args())
    trireme.spec = Spec("+tests", "+cuda")
    trireme.check()
    assert [call[0] for call in calls] == ["enter", "ctest", "leave"] and calls[0][1] == "/build", calls
    assert "--no-tests=error" in calls[1][1], calls
    assert "TRIREME_PYTHON=/python/bin" in trireme.cmake_args(), trireme.cmake_args()
    for package in ("python@3.9:", "py-h5py", "py-numpy", "py-matplotlib"):
        assert any(words == (package,) and "build" in options.get("type", ()) and options.get("when") == "+tests"
                   for directive, words, options in declared if directive == "depends_on"), package
    print("Spack's recipes: as expected")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
