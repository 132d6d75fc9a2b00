# SPDX-License-Identifier: Apache-2.0
from spack.package import *


class CudnnFrontend(Package):
    """cuDNN's front end, headers only; Spack's own packages have none. The version is that of modules/packages/cudnn_frontend.sh."""

    homepage = "https://github.com/NVIDIA/cudnn-frontend"
    git = "https://github.com/NVIDIA/cudnn-frontend.git"

    license("MIT")

    version("1.18.0", tag="v1.18.0", commit="b8c0656e6f6c84fc194f4d57329b55d609eff596")

    def install(self, spec, prefix):
        install_tree("include", prefix.include)
