#!/usr/bin/env bash
# Packs hemi for Debian as OUT/hemi_VERSION_ARCHITECTURE.deb. The same program and the same SOURCE_DATE_EPOCH
# give the same bytes.
#
#   scripts/deb.sh OUT
#
# Environment: BINARY, the program; SOURCE_DATE_EPOCH; DEB_REVISION, 1 by default; DEB_MAINTAINER, the
# maintainer of the package, as in "A Name <address>"; DEB_COMPRESSION, xz by default.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:?names the directory for the package}
: "${BINARY:?names the program to pack}" "${SOURCE_DATE_EPOCH:?gives the date of what is packed}"
for program in dpkg-deb dpkg-shlibdeps; do
  command -v "$program" >/dev/null || { echo "deb: needs $program (Debian's dpkg-dev)" >&2; exit 1; }
done
number=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
version=$number-${DEB_REVISION:-1}
architecture=$(dpkg --print-architecture)
maintainer=${DEB_MAINTAINER:-The hemi developers <hemi@packages.invalid>}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
root=$work/hemi
documents=$root/usr/share/doc/hemi
DESTDIR=$root prefix=/usr STRIP=1 zshcompletiondir=/usr/share/zsh/vendor-completions scripts/install.sh install >/dev/null

# Debian's deviations from GNU.
gzip -9n "$root"/usr/share/man/man?/*
mv "$documents/CHANGELOG.md" "$documents/changelog"
rm "$documents"/LICENSE-*
{
  printf 'hemi (%s) unstable; urgency=medium\n\n  * New version; changelog.gz has the changes.\n\n' "$version"
  printf ' -- %s  %s\n' "$maintainer" "$(date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")"
} >"$documents/changelog.Debian"
gzip -9n "$documents/changelog" "$documents/changelog.Debian"
# Continuation lines of a field are indented, with a dot if they are empty.
sed 's/^$/./; s/^/ /' LICENSE-MIT >"$work/mit"
sed -e "/^@MIT@\$/{r $work/mit" -e 'd}' packaging/deb/copyright >"$documents/copyright"
python3 scripts/notices.py | gzip -9n >"$documents/libraries.gz"
install -D -m 644 packaging/deb/default "$root/etc/default/hemi"
install -D -m 644 packaging/deb/lintian-overrides "$root/usr/share/lintian/overrides/hemi"
install -d -m 755 "$root/etc/hemi"

# dpkg-shlibdeps reads the name of a source package, which does not exist here.
mkdir -p "$work/debian" "$root/DEBIAN"
printf 'Source: hemi\n\nPackage: hemi\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O -e"$root/usr/bin/hemi" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
[ -n "$depends" ] || { echo "deb: cannot tell what $BINARY is linked with" >&2; exit 1; }
size=$(du --apparent-size --block-size=1024 --summarize --exclude=DEBIAN "$root" | cut -f1)
sed -e "s|@VERSION@|$version|; s|@ARCHITECTURE@|$architecture|; s|@MAINTAINER@|$maintainer|" \
  -e "s|@SIZE@|$size|; s|@DEPENDS@|$depends|" packaging/deb/control >"$root/DEBIAN/control"
printf '/etc/default/hemi\n' >"$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do install -m 755 "packaging/deb/$script" "$root/DEBIAN/$script"; done
(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum) \
  >"$root/DEBIAN/md5sums"
chmod 644 "$root/DEBIAN/md5sums" "$root/DEBIAN/conffiles" "$root/DEBIAN/control"
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

mkdir -p "$out"
dpkg-deb --root-owner-group -Z"${DEB_COMPRESSION:-xz}" --build "$root" "$out/hemi_${version}_$architecture.deb"
