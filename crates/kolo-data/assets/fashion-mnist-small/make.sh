#!/bin/sh
# Makes this folder's four data files from Debian's package dataset-fashion-mnist: the first 10,000 training
# and the first 2,000 test images with their labels, as gzip-compressed IDX files without time stamps, so that
# the result is always the same.
#
# usage: ./make.sh [PACKAGE.deb]      without an argument, from the installed package
set -eu

here=$(cd "$(dirname "$0")" && pwd)
from=/usr/share/datasets/fashion-mnist
if [ $# -gt 0 ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    dpkg-deb --extract "$1" "$work"
    from=$work$from
fi

# cut FILE HEADER-BYTES NEW-HEADER DATA-BYTES: the first DATA-BYTES of FILE's data behind a header with the
# smaller count.
cut_idx() {
    gzip -dc "$from/$1.gz" >"$here/$1.whole"
    { printf "$3"; tail -c "+$(($2 + 1))" "$here/$1.whole" | head -c "$4"; } | gzip -9 -n >"$here/$1.gz"
    rm "$here/$1.whole"
}

# 10000 is 0x00002710 (octal 47 20), 2000 is 0x000007d0 (7 320), 28 is 34 in octal.
cut_idx train-images-idx3-ubyte 16 '\000\000\010\003\000\000\047\020\000\000\000\034\000\000\000\034' 7840000
cut_idx train-labels-idx1-ubyte 8 '\000\000\010\001\000\000\047\020' 10000
cut_idx t10k-images-idx3-ubyte 16 '\000\000\010\003\000\000\007\320\000\000\000\034\000\000\000\034' 1568000
cut_idx t10k-labels-idx1-ubyte 8 '\000\000\010\001\000\000\007\320' 2000

cd "$here"
sha256sum ./*-ubyte.gz | sed 's, \./, ,' >SHA256SUMS
cat SHA256SUMS
