#!/bin/sh
# Takes out of the base image, from the root of its file system, what installs packages and what nobody reads in a
# container. dpkg's list of packages stays: image scanners go by it.
set -eu

for python in /usr/lib/python3.11 /usr/local/lib/python3.11; do
    for part in ensurepip idlelib lib2to3 pydoc_data site-packages test tkinter turtledemo; do
        rm -rf "${python:?}/$part"
    done
    rm -rf "$python"/config-*
done
rm -rf /usr/lib/python3/dist-packages /usr/share/python-wheels /usr/bin/pip* /usr/local/bin/*pip* /usr/local/bin/idle*

rm -rf /etc/apt /usr/bin/apt* /usr/bin/dpkg* /usr/lib/apt /usr/lib/dpkg /usr/share/dpkg /usr/lib/*/libapt-*
rm -rf /usr/bin/perl* /usr/lib/*/perl* /usr/share/perl*
rm -rf /usr/lib/*/gconv
for folder in bash-completion bug debconf doc doc-base info lintian locale man menu pixmaps; do
    rm -rf "/usr/share/$folder"
done
rm -rf /var/lib/apt /var/lib/dpkg/info /var/lib/dpkg/*-old /var/cache/* /var/log/*
