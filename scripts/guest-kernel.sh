#!/bin/sh
# Puts a Linux kernel for qemu and its virtio modules into target/guest: Debian's own, not installed. The test
# of a real virtual machine (tests/blackbox/test_virtual_machine.py) needs them, and qemu-system-x86.
set -eu

target=${CARGO_TARGET_DIR:-target}/guest
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
(cd "$work" && apt-get -o APT::Sandbox::User=root download "$package")
dpkg -x "$work"/*.deb "$work/root"

mkdir -p "$target"
cp "$work"/root/boot/vmlinuz-* "$target/vmlinuz"
for module in virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk; do
    file=$(find "$work/root" -name "$module.ko" -o -name "$module.ko.xz" | head -n 1)
    case $file in
        *.xz) xz -dc "$file" >"$target/$module.ko" ;;
        *) cp "$file" "$target/" ;;
    esac
done
echo "$package is in $target"
