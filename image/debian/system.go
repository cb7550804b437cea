package debian

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// included are packages in addition to debootstrap's minimal system: those that make up the
// initrd, and those that install scripts expect on every Debian.
var included = []string{"busybox-static", "kmod", "iproute2", "procps", "netbase"}

// modules are the kernel modules of the initrd, because the kernel has no built-in drivers for
// virtual machines. The modules for networking and for the agent's port serve images without
// modules of this kernel.
var modules = []string{"virtio_pci", "virtio_mmio", "virtio_blk", "virtio_console", "virtio_net", "ext4", "button"}

// kernelScript downloads the kernel for virtual machines and unpacks its package. Installing the
// package would also make an initrd and install a boot loader.
const kernelScript = `
apt-get -q update
cd /tmp
package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
[ -n "$package" ]
apt-get -q -o APT::Sandbox::User=root download "$package"
mkdir kernel
dpkg-deb --extract "$package"_*.deb kernel
version=${package#linux-image-}
mkdir -p /lib/modules /boot
modules=kernel/usr/lib/modules # since Debian 13
[ -d $modules ] || modules=kernel/lib/modules
mv "$modules/$version" /lib/modules/
mv "kernel/boot/vmlinuz-$version" /boot/vmlinuz
echo "$version" > /boot/version
depmod "$version"
rm -rf kernel ./*.deb
`

// installScript installs packages and prevents the start of their services.
const installScript = `
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
apt-get -q update
apt-get -q -y -o APT::Sandbox::User=root install --no-install-recommends "$@"
`

// tidyScript removes files that a guest does not need, and files that came from the host.
const tidyScript = `
apt-get clean
rm -rf /var/lib/apt/lists/* /usr/share/doc /usr/share/man /usr/share/info /usr/share/locale /var/log/*.log /var/log/apt /etc/resolv.conf /etc/hostname
mkdir -p /run /proc /sys /dev /tmp
`

// initrdScript packs the initrd from the tree: a shell, the modules in the order of their
// dependencies, and the init script. It unpacks modules that are compressed (since Debian 13), because
// not every busybox can load those.
const initrdScript = `
version=$(cat /boot/version)
out=/tmp/initrd
mkdir -p $out/bin $out/modules $out/proc $out/sys $out/dev $out/newroot
cp /bin/busybox $out/bin/
for module in "$@"; do
	modprobe --set-version "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
done | awk '!seen[$0]++' > $out/order
number=100
while read -r file; do
	to=$out/modules/$number-$(basename "$file" .xz)
	case $file in
	*.xz) busybox unxz -c "$file" > "$to" ;;
	*) cp "$file" "$to" ;;
	esac
	number=$((number + 1))
done < $out/order
rm $out/order
cp /tmp/init $out/init
chmod 755 $out/init
cd $out
find . | busybox cpio -o -H newc > /boot/initrd
rm -rf $out /tmp/init
`

// initScript is the init of the initrd. The kernel's command line says what to mount:
// vitrine.root is a device. Without it, the script mounts the first partition of vda, or
// vda itself, that holds a file system with an etc. The value of vitrine.init is the
// program on the second disk and its arguments, separated by commas.
const initScript = `#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
for module in /modules/*; do $b insmod "$module" 2>/dev/null; done
root=
program=
for word in $($b cat /proc/cmdline); do
	case $word in
	vitrine.root=*) root=${word#vitrine.root=} ;;
	vitrine.init=*) program=${word#vitrine.init=} ;;
	esac
done
tries=0
while [ ! -b /dev/vdb ] && [ $tries -lt 500 ]; do $b usleep 10000; tries=$((tries + 1)); done
fail() { echo "vitrine: $1"; $b poweroff -f; }
if [ -n "$root" ]; then
	$b mount "$root" /newroot || fail "cannot mount $root"
else
	for root in /dev/vda[0-9]* /dev/vda; do
		[ -b "$root" ] && $b mount "$root" /newroot 2>/dev/null || continue
		[ -d /newroot/etc ] && break
		$b umount /newroot
	done
	[ -d /newroot/etc ] || fail "no file system with a Linux on the disk"
fi
for dir in proc sys dev run tmp; do [ -d /newroot/$dir ] || $b mkdir -p /newroot/$dir; done
$b mount -t tmpfs -o mode=755 tmpfs /newroot/run
$b mkdir -p /newroot/run/vitrine
$b mount -o ro /dev/vdb /newroot/run/vitrine || fail "cannot mount the agent's disk"
for dir in proc sys dev; do $b mount --move /$dir /newroot/$dir; done
IFS=,
set -- $program
unset IFS
exec $b switch_root /newroot /run/vitrine/"$@"
`

// initrd packs the initrd into the tree's boot/initrd.
func (b Builder) initrd(ctx context.Context, root string) error {
	if err := os.WriteFile(filepath.Join(root, "tmp/init"), []byte(initScript), 0o755); err != nil {
		return err
	}
	return b.chroot(ctx, root, strings.TrimSpace(initrdScript), modules...)
}
