#!/usr/bin/env bash
# Runs a command that installs Debian packages, as root, so that no service that they bring is started or enabled.
# A service that was there before is treated as ever.
#
#   scripts/without_services.sh apt-get install mdadm
#
# Packages ask /usr/sbin/policy-rc.d whether they may start a service. While the command runs, one is there that
# denies it to services that were not there before. Afterwards their links are removed, as `systemctl disable` does,
# so that an upgrade of the package does not enable them either.
set -euo pipefail

POLICY=/usr/sbin/policy-rc.d
# The administrator's own, which is asked about services that were there before.
OWN=/usr/sbin/policy-rc.d.before-setup
MARK='# Made by hemi: make setup.'

die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Init scripts and units, by the names that packages ask for.
services() {
  find /etc/init.d /etc/systemd/system /lib/systemd/system /usr/lib/systemd/system \
    -maxdepth 1 ! -type d -printf '%f\n' 2>/dev/null | sort -u
}

# The links by which services start: of systemd, and of runlevels.
enabled() {
  { find /etc/systemd/system /etc/systemd/user -mindepth 1 -type l
    find /etc/rc[2345S].d -name 'S*'; } 2>/dev/null | sort
}

# A killed setup may have left its policy, which has no effect by then.
recover() {
  if ! grep -qsxF "$MARK" "$POLICY"; then return; fi
  local process; process=$(sed -n 's/^setup=//p' "$POLICY")
  if [ -e "/proc/$process" ]; then die "another one is running (process $process): wait for its end"; fi
  remove_policy
}

put_policy() {
  if [ -e "$POLICY" ]; then mv "$POLICY" "$OWN"; fi
  services >"$work/services"
  cat >"$work/policy" <<END
#!/bin/sh
$MARK
setup=$$
unit=\$(printf %s "\$1" | sed 's/@[^.]*/@/')
if [ -e "/proc/\$setup" ] && ! grep -qxF -e "\$unit" -e "\$unit.service" $work/services; then exit 101; fi
if [ -x $OWN ]; then exec $OWN "\$@"; fi
exit 0
END
  install -m 755 "$work/policy" "$POLICY"
}

remove_policy() {
  if [ -e "$OWN" ]; then mv "$OWN" "$POLICY"; else rm -f "$POLICY"; fi
}

disable_new() {
  local link name off=()
  while IFS= read -r link; do
    name=${link##*/}
    case $link in
      /etc/rc?.d/*)
        name=${name#S??}
        if [ -e "$link" ]; then update-rc.d "$name" disable >/dev/null 2>&1 || true; fi
        # A unit of the same name takes the script's place, and has links of its own if it was enabled.
        if [ -L "/lib/systemd/system/$name.service" ] || [ -e "/lib/systemd/system/$name.service" ]; then continue; fi
        ;;
      *)
        # systemd's own units, where systemd itself comes as a dependency.
        if dpkg-query -S "$(readlink "$link")" 2>/dev/null | grep -q '^systemd:'; then continue; fi
        rm -f "$link"
        ;;
    esac
    off+=("${name%.service}")
  done < <(comm -13 "$work/enabled" <(enabled))
  if [ "${#off[@]}" -gt 0 ]; then
    printf 'setup: came along, and stay off (systemctl enable --now NAME): %s\n' \
      "$(printf '%s\n' "${off[@]}" | sort -u | paste -sd' ')"
  fi
  if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
}

finish() {
  local status=$?
  disable_new
  remove_policy
  rm -rf "$work"
  exit "$status"
}

[ "$(id -u)" = 0 ] || die "needs root to run '$*'"
recover
work=$(mktemp -d)
chmod 755 "$work"
enabled >"$work/enabled"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
put_policy
"$@"
