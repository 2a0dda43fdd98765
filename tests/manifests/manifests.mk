# SPDX-License-Identifier: Apache-2.0
# The README's Kubernetes manifests against the published schemas, and their options against the binary.
.PHONY: manifests
manifests: $(NEED) $(B)/celld
	@sh tests/manifests/run.sh $(B)/celld $(B)
