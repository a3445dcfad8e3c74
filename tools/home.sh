#!/bin/sh
# Usage: PINFEED_REPOSITORY=https://example.org/pinfeed tools/home.sh TAG
# Gives a release's copy of the sources its home: makes the links in README.md absolute, which the
# metadata repeats elsewhere, and adds the project's URLs to it.
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
