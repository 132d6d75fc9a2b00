# SPDX-License-Identifier: Apache-2.0
try:
    from spack_repo.builtin.build_systems.cmake import CMakePackage
    from spack_repo.builtin.build_systems.cuda import CudaPackage
except ImportError:  # before Spack 1.0 they came with spack.package
    pass
from spack.package import *


class Trireme(CMakePackage, CudaPackage):
    """Data-parallel GPT training for MPI clusters, in one C++20 executable."""

    # Until there is a release with an address: `spack develop --path /path/to/trireme trireme@main`.
    version("main", branch="main", no_cache=True)

    license("Apache-2.0")

    variant("onednn", default=True, description="oneDNN, which bench matmul compares with trireme's own products")
    variant("tests", default=False, description="Build the tests")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("mpi@3.1:")  # no variant: the executable is an MPI program, also on one rank
    depends_on("hdf5@1.10.7:1.10,1.12.1:")
    depends_on("yaml-cpp@0.7:")
    depends_on("cli11@2.3:")
    depends_on("nlohmann-json@3.11:")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("bzip2")
    depends_on("xz")
    depends_on("fmt@9:")
    depends_on("onednn@2.6: cpu_runtime=omp", when="+onednn")
    depends_on("googletest@1.12: +gmock", when="+tests")
    for package in ("python@3.9:", "py-h5py", "py-numpy", "py-matplotlib"):
        depends_on(package, type="run")
        depends_on(package, type=("build", "test"), when="+tests")  # CMake looks for Python where there are tests
    with when("+cuda"):
        depends_on("cuda@12:")
        depends_on("cudnn@9:")
        depends_on("nccl@2.19:")
        depends_on("cudnn-frontend", type="build")
    for arch in CudaPackage.cuda_arch_values:  # without it Spack's nccl refuses
        depends_on(f"nccl cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")

    conflicts("%gcc@:11", msg="trireme needs g++ 12 or later")
    conflicts("%clang@:15", msg="trireme needs clang++ 16 or later")
    conflicts("cuda_arch=none", when="+cuda", msg="say for which GPUs: cuda_arch=80,90")

    generator("ninja")

    def cmake_args(self):
        args = [
            self.define_from_variant("TRIREME_ONEDNN", "onednn"),
            self.define_from_variant("TRIREME_TESTS", "tests"),
            self.define("TRIREME_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
        ]
        if self.spec.satisfies("+tests"):  # CMake would take the system's
            args.append(self.define("TRIREME_PYTHON", self.spec["python"].command.path))
        if self.spec.satisfies("+cuda"):
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
            args.append(self.define("TRIREME_CUDNN_FRONTEND", self.spec["cudnn-frontend"].prefix))
        return args

    def setup_build_environment(self, env):
        if self.spec.satisfies("+cuda"):
            env.set("CUDNN_PATH", self.spec["cudnn"].prefix)
            env.set("NCCL_HOME", self.spec["nccl"].prefix)

    def check(self):
        if not self.spec.satisfies("+tests"):
            return
        with working_dir(self.build_directory):
            ctest("-L", "^unit$", "--no-tests=error", "--output-on-failure")
