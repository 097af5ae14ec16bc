#!/usr/bin/env bash
# Takes a picture of an HTML file with headless Chromium.
#   scripts/screenshot.sh PAGE.html PICTURE.png [WIDTH [HEIGHT]]
set -euo pipefail

page=${1:?which page}
picture=${2:?which picture}
width=${3:-1180}
height=${4:-2400}

case $picture in *.png) ;; *)
  echo "screenshot: $picture: name a picture that ends in .png" >&2
  exit 2
  ;;
esac

for name in chromium chromium-browser google-chrome; do
  if browser=$(command -v "$name"); then break; fi
done
if [ -z "${browser:-}" ]; then
  echo "screenshot: no Chromium (Debian: apt-get install chromium): $picture was not made" >&2
  exit 1
fi

profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
rm -f "$picture"
# Virtual time lets charts be drawn before the picture is taken, however slow the machine is.
timeout 180 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
  --hide-scrollbars --user-data-dir="$profile" --virtual-time-budget=20000 \
  --window-size="$width,$height" --screenshot="$(realpath -m "$picture")" \
  "file://$(realpath "$page")" >"$profile/said" 2>&1 || { cat "$profile/said" >&2; exit 1; }
[ -s "$picture" ] || { cat "$profile/said" >&2; exit 1; }
