#!/usr/bin/env bash
# Builds the book into target/book: scripts/book.sh MDBOOK [build|serve|watch] [ARGUMENTS].
#
# mdBook wants all pages below one directory, and hemi's lie in docs/ and at the root of the tree. Their links
# cross that border, so the book's source has the tree's shape: symbolic links to the pages and to the files that
# pages link to. Nothing is rewritten but docs/SUMMARY.md, whose paths are relative to docs/.
set -euo pipefail
cd "$(dirname "$0")/.."
mdbook=$1
shift
source=target/book-source

rm -rf "$source"
mkdir -p "$source/lab"
for entry in README.md ARCHITECTURE.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs packaging; do
  ln -s "$PWD/$entry" "$source/$entry"
done
ln -s "$PWD/lab/setups" "$source/lab/setups"
sed -E 's|\]\(\.\./|](|; t; s|\]\(|](docs/|' docs/SUMMARY.md >"$source/SUMMARY.md"

"$mdbook" "${1:-build}" "${@:2}"
