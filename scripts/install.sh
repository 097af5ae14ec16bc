#!/usr/bin/env bash
# Installs hemi, or removes it again, for `make install`, `make uninstall` and scripts/deb.sh.
#
#   scripts/install.sh install|uninstall
#
# Environment, as in GNU's conventions: DESTDIR, prefix, exec_prefix, bindir, datarootdir, mandir, docdir; the
# directories of systemd, udev, tmpfiles and the shells; BINARY, the program to install; STRIP=1 to install it
# without its symbols; SOURCE_DATE_EPOCH, for the date of the man pages.
set -euo pipefail
cd "$(dirname "$0")/.."

DESTDIR=${DESTDIR:-}
prefix=${prefix:-/usr/local}
exec_prefix=${exec_prefix:-$prefix}
bindir=${bindir:-$exec_prefix/bin}
datarootdir=${datarootdir:-$prefix/share}
mandir=${mandir:-$datarootdir/man}
docdir=${docdir:-$datarootdir/doc/hemi}
systemdsystemunitdir=${systemdsystemunitdir:-$prefix/lib/systemd/system}
udevrulesdir=${udevrulesdir:-$prefix/lib/udev/rules.d}
tmpfilesdir=${tmpfilesdir:-$prefix/lib/tmpfiles.d}
bashcompletiondir=${bashcompletiondir:-$datarootdir/bash-completion/completions}
zshcompletiondir=${zshcompletiondir:-$datarootdir/zsh/site-functions}
fishcompletiondir=${fishcompletiondir:-$datarootdir/fish/vendor_completions.d}

# Destination of each completion: shell and file.
COMPLETIONS=("bash $bashcompletiondir/hemi" "zsh $zshcompletiondir/_hemi" "fish $fishcompletiondir/hemi.fish")
# Files that refer to the program by its path, which may be another one here.
UNITS=(hemi@.service hemi-settle@.service hemi-scrub@.service hemi-scrub@.timer hemi-monitor.service
  hemi-exporter.service)
RULES=64-hemi.rules
# Copied by whoever needs them: drop-ins, the example configuration, the profile for containers.
EXAMPLES=(README.md hemi.toml device.conf root.conf keep-clients.conf seccomp.json drive-health.conf
  prometheus/hemi.rules.yml prometheus/hemi.test.yml grafana/hemi.json)

put() { install -D -m "${3:-644}" "$1" "$DESTDIR$2"; }

# The same file with the program's path, since the units and rules are written for /usr/bin.
put_with_path() {
  local made; made=$(mktemp)
  sed "s|/usr/bin/hemi|$bindir/hemi|g" "packaging/$1" >"$made"
  put "$made" "$2/$1"
  rm "$made"
}

do_install() {
  local binary=${BINARY:?names the program to install}
  if [ ! -x "$binary" ]; then
    echo "install: there is no $binary. Build it with 'make release', or name another one: BINARY=PATH" >&2
    exit 1
  fi
  put "$binary" "$bindir/hemi" 755
  # `strip` works on a copy, so that the build keeps its line tables.
  if [ "${STRIP:-0}" = 1 ]; then strip --remove-section=.comment "$DESTDIR$bindir/hemi"; fi

  local made; made=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$made'" EXIT
  local date=
  if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then date=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%F); fi
  "$binary" generate man --docs docs --installed "$docdir/docs" --date "$date" "$made"
  local page
  for page in "$made"/*.[15]; do put "$page" "$mandir/man${page##*.}/${page##*/}"; done

  local entry
  for entry in "${COMPLETIONS[@]}"; do
    "$binary" generate completions "${entry%% *}" >"$made/completion"
    put "$made/completion" "${entry#* }"
  done

  local unit
  for unit in "${UNITS[@]}"; do put_with_path "$unit" "$systemdsystemunitdir"; done
  put_with_path "$RULES" "$udevrulesdir"
  put packaging/hemi.tmpfiles "$tmpfilesdir/hemi.conf"

  # As in the source tree, so that links between pages hold.
  local file
  while IFS= read -r file; do put "$file" "$docdir/$file"; done < <(
    find docs -type f \( -name '*.md' -o -name '*.svg' -o -name '*.png' \) | LC_ALL=C sort)
  for file in README.md ARCHITECTURE.md CONTRIBUTING.md SECURITY.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE; do put "$file" "$docdir/$file"; done
  for file in "${EXAMPLES[@]}"; do put "packaging/$file" "$docdir/packaging/$file"; done

  echo "installed $("$binary" --version | head -n 1) as $DESTDIR$bindir/hemi, with man pages, completions, systemd units and udev rules"
  echo "documents and examples of configurations: $DESTDIR$docdir"
  next_step "then write /etc/hemi/NAME.toml, and systemctl enable --now hemi@NAME"
}

# systemd and udev do not look for new files by themselves. A DESTDIR is not where they look.
next_step() {
  if [ -n "$DESTDIR" ]; then return; fi
  echo "next: systemctl daemon-reload && udevadm control --reload${1:+; $1}"
}

do_uninstall() {
  local gone=("$bindir/hemi" "$mandir/man1/hemi.1" "$mandir/man5/hemi.toml.5" "$udevrulesdir/$RULES"
    "$tmpfilesdir/hemi.conf")
  local entry
  for entry in docs/commands/*.md; do gone+=("$mandir/man1/hemi-$(basename "$entry" .md).1"); done
  for entry in "${COMPLETIONS[@]}"; do gone+=("${entry#* }"); done
  for entry in "${UNITS[@]}"; do gone+=("$systemdsystemunitdir/$entry"); done
  for entry in "${gone[@]}"; do rm -f "$DESTDIR$entry"; done
  rm -rf "$DESTDIR${docdir:?}"
  echo "removed hemi from $DESTDIR$bindir, with what was installed beside it. Volumes, /etc/hemi and /var/lib/hemi stay"
  next_step
}

case "${1:-}" in
  install) do_install ;;
  uninstall) do_uninstall ;;
  *) sed -n '2,4p' "$0" >&2; exit 2 ;;
esac
