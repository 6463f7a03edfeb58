#!/bin/sh
# Writes /bitcoin.conf and runs the daemon. The image of the Dockerfile and process pods (daemon.py) use this script.
#   BC_RPC_USER, BC_RPC_PASSWORD   credentials of the RPC interface; default, if one is missing: user and password
#   POD_IP                         address to listen on; default: all addresses
set -eu
umask 077
mkdir -p /bitcoin-data
if [ -z "${BC_RPC_USER:-}" ] || [ -z "${BC_RPC_PASSWORD:-}" ]; then
    BC_RPC_USER=user BC_RPC_PASSWORD=password
fi

# Daemons since Bitcoin Core 0.17 read the addresses of regtest in the section [regtest] only, older ones outside of sections only.
addresses() {
    case ${POD_IP:=0.0.0.0} in
    *:*) host="[$POD_IP]" ;;
    *) host=$POD_IP ;;
    esac
    echo "bind=$host:18444"
    echo "rpcport=18332"
    echo "rpcbind=$host:18332"
    case $POD_IP in
    0.0.0.0) ;;
    *)
        echo "rpcconnect=$POD_IP"
        # kubectl port-forward connects to 127.0.0.1 of a pod. Process pods share this address, and there it connects to the pod's.
        [ -n "${KUBELOOP_POD_IP:-}" ] || echo "rpcbind=127.0.0.1:18332"
        ;;
    esac
}

cat >/bitcoin.conf <<EOF
regtest=1
server=1
rest=1
txindex=1
datadir=/bitcoin-data
rpcuser=$BC_RPC_USER
rpcpassword=$BC_RPC_PASSWORD
rpcallowip=0.0.0.0/0
rpcallowip=::/0
# Bitcoin SV refuses to start without these three; other daemons ignore them.
maxstackmemoryusageconsensus=0
excessiveblocksize=10000000000
minminingtxfee=0.00000001
$(addresses)
[regtest]
$(addresses)
EOF

exec bitcoind -conf=/bitcoin.conf -regtest -printtoconsole
