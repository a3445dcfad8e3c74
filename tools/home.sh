#!/bin/sh
# Usage: tools/home.sh REPOSITORY TAG
# Gives a release's copy of the sources its home, such as https://example.org/pinfeed: makes the links in
# README.md absolute, which the metadata repeats elsewhere, and adds the project's URLs to it.
set -eu

sed -i.before -E -e "s#(!\[[^]]*\])\(([^):#][^):]*)\)#\1($1/raw/$2/\2)#g" \
  -e "s#\]\(([^):#][^):]*)\)#]($1/blob/$2/\1)#g" README.md
rm README.md.before
cat >>pyproject.toml <<EOF

[project.urls]
Source = "$1"
Issues = "$1/issues"
Changelog = "$1/blob/$2/CHANGELOG.md"
EOF
