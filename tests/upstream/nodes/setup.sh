#!/bin/sh
# The first process of a node's namespaces: makes their mounts and their network, prints "ready", and waits until it is ended.
# Programs find their usual paths (/var/lib/kubelet, /run/containerd, /etc/cni); nothing of it is the machine's.
# Usage: setup.sh DEBIAN_FILES HOME ADDRESS own|shared (the network is the node's own, or that of another node)
set -e
debian=$1 home=$2 address=$3 network=$4
mount --make-rshared /
mount -t overlay overlay -o "lowerdir=$debian/usr:/usr" /usr
mkdir -p "$home/etc" "$home/etc.work" "$home/var/lib/containerd" "$home/var/lib/kubelet" "$home/var/log/pods" "$home/var/tmp"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$home/etc,workdir=$home/etc.work" /etc
mount --bind "$home/var" /var
mount -t tmpfs tmpfs /run
ln -s /run /var/run
mkdir /run/lock

if [ "$network" = own ]; then
  ip link set lo up
  ip link add eth0 type bridge
  ip link set eth0 up
  ip route add default dev eth0
  sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
fi
ip address add "$address/24" dev eth0

echo ready
# As the first process it is the parent of all orphans: wait reaps them.
while :; do sleep 3600 & wait $!; done
