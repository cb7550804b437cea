#!/bin/sh
# A hop of a chain by the Click Modular Router, as in the paper's section III.B:
#
#	vitrine measure chain --forwarder script --script papers/container-networking/click.sh
#
# INTERFACE and NEXT_MAC come from vitrine. Frames to this hop get its address as
# their source and the next hop's as their destination, and go back out.
own=$(cat "/sys/class/net/$INTERFACE/address")
exec click -e "
FromDevice($INTERFACE)
	-> HostEtherFilter($own, DROP_OWN true)
	-> Classifier(12/0800)
	-> EtherRewrite($own, $NEXT_MAC)
	-> Queue
	-> ToDevice($INTERFACE);
"
