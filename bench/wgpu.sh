#!/usr/bin/env bash
# Trains on wgpu as on flex (crates/kolo-burn/tests/devices.rs), without a GPU by Mesa's lavapipe. It is no part
# of .ci/run, because building Burn with wgpu takes more than 20 minutes of processor time (dev profile, two
# cores).
#
#   bash bench/wgpu.sh
#
# Installs Debian's mesa-vulkan-drivers and libvulkan1 where no Vulkan driver is found. VK_ICD_FILENAMES picks
# a driver; where there is none at all the tests are ignored, with the reason.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! compgen -G "/usr/share/vulkan/icd.d/*.json" >/dev/null; then
    root=
    if [ "$(id -u)" != 0 ]; then root="sudo -n"; fi
    $root apt-get update -qq </dev/null &&
        $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            mesa-vulkan-drivers libvulkan1 </dev/null || echo "note: Mesa's Vulkan drivers could not be installed"
fi
exec nice cargo test -p kolo-burn --features wgpu --test devices "$@"
