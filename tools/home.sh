#!/bin/sh
# Usage: PINFEED_REPOSITORY=https://example.org/pinfeed tools/home.sh TAG
# Writes the repository's address into a release's copy of the sources: makes the links in README.md
# absolute, because package indexes show it too, and adds the project's URLs to the metadata.
set -eu
home=$PINFEED_REPOSITORY

sed -i.before -E -e "s#(!\[[^]]*\])\(([^):#][^):]*)\)#\1($home/raw/$1/\2)#g" \
  -e "s#\]\(([^):#][^):]*)\)#]($home/blob/$1/\1)#g" README.md
rm README.md.before
cat >>pyproject.toml <<EOF

[project.urls]
Source = "$home"
Issues = "$home/issues"
Changelog = "$home/blob/$1/CHANGELOG.md"
EOF
