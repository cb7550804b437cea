#!/usr/bin/env python3
"""Writes golden.txt, NGAP messages made by pycrate 0.8.1 (PyPI, LGPL-2.1):

    python3 -m venv venv && venv/bin/pip install pycrate==0.8.1
    venv/bin/python golden.py > golden.txt

A line has the name of a message, its AMF and RAN UE identities and its NAS PDU, - for
none, and its octets.
"""
from pycrate_asn1dir import NGAP

PDU = NGAP.NGAP_PDU_Descriptions.NGAP_PDU
PLMN = bytes.fromhex('00f110')
LOCATION = ('userLocationInformationNR', {'nR-CGI': {'pLMNIdentity': PLMN, 'nRCellIdentity': (1, 36)}, 'tAI': {'pLMNIdentity': PLMN, 'tAC': b'\0\0\1'}})
REGISTRATION = bytes.fromhex('7e004179000d0100f1100000000010325476982e02e0e0')
PROTECTED = bytes.fromhex('7e03a1b2c3d4007e005d020002e0e0')
CIPHERED = bytes.fromhex('7e02a1b2c3d405') + bytes(range(100, 140))
LONG = bytes.fromhex('7e02a1b2c3d406') + bytes(range(256))
CAUSE = ('Cause', ('radioNetwork', 'user-inactivity'))
AMBR = {'uEAggregateMaximumBitRateDL': 256000000, 'uEAggregateMaximumBitRateUL': 48000000}
GUAMI = {'pLMNIdentity': PLMN, 'aMFRegionID': (1, 8), 'aMFSetID': (1, 10), 'aMFPointer': (0, 6)}
SLICE = {'s-NSSAI': {'sST': b'\1'}}
KEY = (int.from_bytes(bytes(range(32)), 'big'), 256)
CAPABILITIES = {k: (0xc000, 16) for k in ('nRencryptionAlgorithms', 'nRintegrityProtectionAlgorithms', 'eUTRAencryptionAlgorithms', 'eUTRAintegrityProtectionAlgorithms')}


def transfer():
    t = NGAP.NGAP_IEs.PathSwitchRequestTransfer
    t.set_val({'dL-NGU-UP-TNLInformation': ('gTPTunnel', {'transportLayerAddress': (0x7f000007, 32), 'gTP-TEID': b'\1\2\3\4'}),
               'qosFlowAcceptedList': [{'qosFlowIdentifier': 1}]})
    return t.to_aper()


def message(name, kind, code, criticality, container, ies, amf=None, ran=None, nas=None):
    PDU.set_val((kind, {'procedureCode': code, 'criticality': criticality, 'value': (container, {
        'protocolIEs': [{'id': i, 'criticality': c, 'value': v} for i, c, v in ies]})}))
    show = lambda v: '-' if v is None else str(v)
    print(name, show(amf), show(ran), nas.hex() if nas else '-', PDU.to_aper().hex())


def transport(name, code, container, amf, ran, nas, *more):
    message(name, 'initiatingMessage', code, 'ignore', container, [
        (10, 'reject', ('AMF-UE-NGAP-ID', amf)), (85, 'reject', ('RAN-UE-NGAP-ID', ran)), (38, 'reject', ('NAS-PDU', nas)), *more], amf, ran, nas)


print('# Made by golden.py with pycrate 0.8.1.')
first, good, bad = 'initiatingMessage', 'successfulOutcome', 'unsuccessfulOutcome'
message('ng-setup-failure', bad, 21, 'reject', 'NGSetupFailure', [(15, 'ignore', ('Cause', ('misc', 'unspecified')))])
message('initial-ue-message', first, 15, 'ignore', 'InitialUEMessage', [
    (85, 'reject', ('RAN-UE-NGAP-ID', 7)), (38, 'reject', ('NAS-PDU', REGISTRATION)), (121, 'reject', ('UserLocationInformation', LOCATION)),
    (90, 'ignore', ('RRCEstablishmentCause', 'mo-Signalling'))], None, 7, REGISTRATION)
transport('downlink-nas-transport', 4, 'DownlinkNASTransport', 0, 0, PROTECTED)
transport('downlink-nas-transport-largest', 4, 'DownlinkNASTransport', 2**40 - 1, 2**32 - 1, LONG)
transport('uplink-nas-transport', 46, 'UplinkNASTransport', 256, 65536, CIPHERED, (121, 'ignore', ('UserLocationInformation', LOCATION)))
transport('uplink-nas-transport-middle', 46, 'UplinkNASTransport', 2**24, 255, PROTECTED, (121, 'ignore', ('UserLocationInformation', LOCATION)))
message('initial-context-setup-request', first, 14, 'reject', 'InitialContextSetupRequest', [
    (10, 'reject', ('AMF-UE-NGAP-ID', 70000)), (85, 'reject', ('RAN-UE-NGAP-ID', 300)), (28, 'reject', ('GUAMI', GUAMI)),
    (0, 'reject', ('AllowedNSSAI', [SLICE])), (119, 'reject', ('UESecurityCapabilities', CAPABILITIES)), (94, 'reject', ('SecurityKey', KEY)),
    (38, 'ignore', ('NAS-PDU', CIPHERED))], 70000, 300, CIPHERED)
message('initial-context-setup-response', good, 14, 'reject', 'InitialContextSetupResponse', [
    (10, 'ignore', ('AMF-UE-NGAP-ID', 70000)), (85, 'ignore', ('RAN-UE-NGAP-ID', 300))], 70000, 300)
message('ue-context-release-command', first, 41, 'reject', 'UEContextReleaseCommand', [
    (114, 'reject', ('UE-NGAP-IDs', ('uE-NGAP-ID-pair', {'aMF-UE-NGAP-ID': 2**33, 'rAN-UE-NGAP-ID': 1000}))), (15, 'ignore', CAUSE)], 2**33, 1000)
message('ue-context-release-command-amf', first, 41, 'reject', 'UEContextReleaseCommand', [
    (114, 'reject', ('UE-NGAP-IDs', ('aMF-UE-NGAP-ID', 515))), (15, 'ignore', CAUSE)], 515)
message('path-switch-request', first, 25, 'reject', 'PathSwitchRequest', [
    (85, 'reject', ('RAN-UE-NGAP-ID', 9)), (100, 'reject', ('AMF-UE-NGAP-ID', 77)), (121, 'ignore', ('UserLocationInformation', LOCATION)),
    (119, 'ignore', ('UESecurityCapabilities', CAPABILITIES)),
    (76, 'reject', ('PDUSessionResourceToBeSwitchedDLList', [{'pDUSessionID': 1, 'pathSwitchRequestTransfer': transfer()}]))], 77, 9)
message('error-indication', first, 9, 'ignore', 'ErrorIndication', [
    (10, 'ignore', ('AMF-UE-NGAP-ID', 1)), (85, 'ignore', ('RAN-UE-NGAP-ID', 2)), (15, 'ignore', ('Cause', ('protocol', 'semantic-error')))], 1, 2)
