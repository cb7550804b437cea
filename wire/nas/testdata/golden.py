#!/usr/bin/env python3
"""Writes golden.txt, NAS messages made by pycrate 0.8.1 (PyPI, LGPL-2.1):

    python3 -m venv venv && venv/bin/pip install pycrate==0.8.1
    venv/bin/python golden.py > golden.txt

A line has the name of a message and its octets. The frames with a security
header use pycrate's header; their code and sequence number are made up, because
pycrate needs a module that PyPI lacks for NAS security.
"""
import struct
from pycrate_mobile import TS24301_EMM as emm, TS24301_ESM as esm

IMSI = {'type': 1, 'ident': '001010123456789'}
EVEN = {'type': 1, 'ident': '00101012345678'}
IMEISV = {'type': 3, 'ident': '3548020912345678'}
GUTI = {'type': 6, 'ident': ('00101', 0x8001, 3, 0xdeadbeef)}
OTHER = {'type': 6, 'ident': ('310410', 0x0002, 255, 1)}
TAI = {'PLMN': '00101', 'TAC': 12345}
PCO = bytes.fromhex('80000d00001000')
APN = b'\x08internet\x07example'
RAND, AUTN = bytes(range(16)), bytes(range(16, 32))


def put(name, message):
    octets = message if isinstance(message, bytes) else message.to_bytes()
    print(name, octets.hex())
    return octets


def bearer(ebi, pti):
    return {'EPSBearerId': ebi, 'PTI': pti}


def sec(header, mac, seqn, message):
    h = emm.EMMHeaderSec(val={'SecHdr': header})
    return h.to_bytes() + struct.pack('>IB', mac, seqn) + message


print('# Made by golden.py with pycrate 0.8.1.')
pdn = put('pdn-connectivity-request', esm.ESMPDNConnectivityRequest(val={
    'ESMHeader': bearer(0, 1), 'PDNType': 1, 'RequestType': 1, 'ESMInfoTransferFlag': 1,
    'APN': APN, 'ProtConfig': PCO}))
attach = put('attach-request-imsi', emm.EMMAttachRequest(val={
    'NAS_KSI': 7, 'EPSAttachType': 1, 'EPSID': IMSI, 'UENetCap': b'\xa0\x20', 'ESMContainer': pdn}))
put('attach-request-guti', emm.EMMAttachRequest(val={
    'NAS_KSI': 2, 'EPSAttachType': 2, 'EPSID': GUTI, 'UENetCap': b'\xe0\xe0\x00\x00', 'ESMContainer': pdn,
    'AddGUTI': OTHER, 'OldTAI': TAI, 'DRXParam': b'\x0a\x00', 'MSNetCap': b'\xe5\xc0',
    'VoiceDomPref': b'\x03', 'OldGUTIType': 1}))
put('attach-request-even-unknown', emm.EMMAttachRequest(val={
    'NAS_KSI': 7, 'EPSAttachType': 1, 'EPSID': EVEN, 'UENetCap': b'\xa0\x20', 'ESMContainer': pdn,
    'OldPTMSISign': b'\1\2\3', 'OldLAI': b'\x00\xf1\x10\0\1', 'TMSIStatus': 1, 'MSCm2': b'\x57\x58\xa6',
    'AddUpdateType': 2, 'T3412Ext': b'\x41', 'UEStatus': b'\1', 'AddInfoReq': b'\1', 'N1UENetCap': b'\x20'}))
default = put('default-bearer-request', esm.ESMActDefaultEPSBearerCtxtRequest(val={
    'ESMHeader': bearer(5, 1), 'EPSQoS': b'\x09', 'APN': APN, 'PDNAddr': b'\x01\x2d\x2d\0\2',
    'APN_AMBR': b'\xfe\xfe\xfa\x6a', 'ESMCause': b'\x32', 'ProtConfig': PCO}))
put('default-bearer-request-unknown', esm.ESMActDefaultEPSBearerCtxtRequest(val={
    'ESMHeader': bearer(6, 2), 'EPSQoS': b'\x05', 'APN': b'\x03ims', 'PDNAddr': b'\x03' + bytes(7) + b'\x01\x2d\x2d\0\2',
    'TI': b'\0', 'QoS': bytes(11), 'LLC_SAPI': b'\x03', 'RadioPriority': 4, 'PacketFlowId': b'\0',
    'ProtConfig': PCO}))
put('attach-accept', emm.EMMAttachAccept(val={
    'EPSAttachResult': 1, 'T3412': b'\x49', 'TAIList': bytes.fromhex('0000f1103039'), 'ESMContainer': default,
    'GUTI': GUTI, 'EMMCause': b'\x12', 'T3402': b'\x2c', 'T3423': b'\x49',
    'EquivPLMNList': bytes.fromhex('130014'), 'EPSNetFeat': b'\x01', 'T3412Ext': b'\x21'}))
accept = put('default-bearer-accept', esm.ESMActDefaultEPSBearerCtxtAccept(val={'ESMHeader': bearer(5, 0)}))
complete = put('attach-complete', emm.EMMAttachComplete(val={'ESMContainer': accept}))
reject = put('pdn-connectivity-reject', esm.ESMPDNConnectivityReject(val={'ESMHeader': bearer(0, 1), 'ESMCause': b'\x1b'}))
put('attach-reject', emm.EMMAttachReject(val={'EMMCause': b'\x13', 'ESMContainer': reject, 'T3346': b'\x21'}))
put('detach-request', emm.EMMDetachRequestMO(val={'NAS_KSI': 2, 'EPSDetachType': 9, 'EPSID': GUTI}))
put('network-detach', emm.EMMDetachRequestMT(val={'EPSDetachType': 1, 'EMMCause': b'\x02'}))
put('detach-accept', emm.EMMDetachAccept())
put('tau-request', emm.EMMTrackingAreaUpdateRequest(val={
    'NAS_KSI': 1, 'EPSUpdateType': 8, 'OldGUTI': GUTI, 'Native_NAS_KSI': 2, 'AddGUTI': OTHER,
    'UENetCap': b'\xe0\xe0', 'OldTAI': TAI, 'DRXParam': b'\x0a\x00', 'EPSBearerCtxtStat': b'\x20\x00'}))
put('tau-accept', emm.EMMTrackingAreaUpdateAccept(val={
    'EPSUpdateResult': 0, 'T3412': b'\x49', 'GUTI': OTHER, 'TAIList': bytes.fromhex('0000f1103039'),
    'EPSBearerCtxtStat': b'\x20\x00', 'EMMCause': b'\x12', 'T3402': b'\x2c', 'T3423': b'\x49',
    'EPSNetFeat': b'\x01'}))
put('tau-complete', emm.EMMTrackingAreaUpdateComplete())
put('tau-reject', emm.EMMTrackingAreaUpdateReject(val={'EMMCause': b'\x0a', 'T3346': b'\x21'}))
put('service-reject', emm.EMMServiceReject(val={'EMMCause': b'\x09'}))
put('guti-reallocation-command', emm.EMMGUTIReallocCommand(val={'GUTI': GUTI, 'TAIList': bytes.fromhex('0000f1103039')}))
put('guti-reallocation-complete', emm.EMMGUTIReallocComplete())
put('authentication-request', emm.EMMAuthenticationRequest(val={'NAS_KSI': 2, 'RAND': RAND, 'AUTN': AUTN}))
put('authentication-response', emm.EMMAuthenticationResponse(val={'RES': RAND[:8]}))
put('authentication-reject', emm.EMMAuthenticationReject())
put('authentication-failure', emm.EMMAuthenticationFailure(val={'EMMCause': b'\x15', 'AUTS': RAND[:14]}))
put('identity-request', emm.EMMIdentityRequest(val={'IDType': 1}))
put('identity-response', emm.EMMIdentityResponse(val={'ID': IMSI}))
command = put('security-mode-command', emm.EMMSecurityModeCommand(val={
    'NASSecAlgo': b'\x02', 'NAS_KSI': 2, 'UESecCap': b'\xa0\x20', 'IMEISVReq': 1}))
smc = put('security-mode-complete', emm.EMMSecurityModeComplete(val={'IMEISV': IMEISV}))
put('security-mode-reject', emm.EMMSecurityModeReject(val={'EMMCause': b'\x17'}))
put('emm-status', emm.EMMStatus(val={'EMMCause': b'\x61'}))
put('emm-information', emm.EMMInformation(val={
    'NetFullName': b'\x90V\x00i', 'NetShortName': b'\x90V', 'LocalTimeZone': b'\x40',
    'UnivTimeAndTimeZone': bytes.fromhex('62114231000040'), 'DLSavingTime': b'\x01'}))
dedicated = put('dedicated-bearer-request', esm.ESMActDediEPSBearerCtxtRequest(val={
    'ESMHeader': bearer(6, 0), 'LinkedEPSBearerId': 5, 'EPSQoS': bytes.fromhex('0180804040'),
    'TFT': bytes.fromhex('2121000530115013c4'), 'ProtConfig': PCO}))
put('dedicated-bearer-accept', esm.ESMActDediEPSBearerCtxtAccept(val={'ESMHeader': bearer(6, 0)}))
put('dedicated-bearer-reject', esm.ESMActDediEPSBearerCtxtReject(val={'ESMHeader': bearer(6, 0), 'ESMCause': b'\x1a'}))
put('modify-bearer-request', esm.ESMModifyEPSBearerCtxtRequest(val={
    'ESMHeader': bearer(6, 0), 'EPSQoS': bytes.fromhex('0180804040'), 'APN_AMBR': b'\xfe\xfe\xfa\x6a'}))
put('modify-bearer-accept', esm.ESMModifyEPSBearerCtxtAccept(val={'ESMHeader': bearer(6, 0)}))
put('deactivate-bearer-request', esm.ESMDeactEPSBearerCtxtRequest(val={'ESMHeader': bearer(6, 3), 'ESMCause': b'\x24'}))
put('deactivate-bearer-accept', esm.ESMDeactEPSBearerCtxtAccept(val={'ESMHeader': bearer(6, 0)}))
put('bearer-resource-allocation-request', esm.ESMBearerResourceAllocRequest(val={
    'ESMHeader': bearer(0, 2), 'LinkedEPSBearerId': 5, 'TFAggregate': bytes.fromhex('2121000530115013c4'),
    'EPSQoS': bytes.fromhex('0180804040'), 'ProtConfig': PCO}))
put('bearer-resource-allocation-reject', esm.ESMBearerResourceAllocReject(val={'ESMHeader': bearer(0, 2), 'ESMCause': b'\x1a'}))
put('bearer-resource-modification-request', esm.ESMBearerResourceModifRequest(val={
    'ESMHeader': bearer(0, 3), 'LinkedEPSBearerId': 6, 'TFAggregate': b'\xa1\x01', 'ESMCause': b'\x24'}))
put('bearer-resource-modification-reject', esm.ESMBearerResourceModifReject(val={'ESMHeader': bearer(0, 3), 'ESMCause': b'\x2b'}))
put('pdn-disconnect-request', esm.ESMPDNDisconnectRequest(val={'ESMHeader': bearer(0, 4), 'LinkedEPSBearerId': 5}))
put('esm-information-request', esm.ESMInformationRequest(val={'ESMHeader': bearer(0, 1)}))
put('esm-information-response', esm.ESMInformationResponse(val={
    'ESMHeader': bearer(0, 1), 'APN': APN, 'ProtConfig': PCO}))
put('esm-status', esm.ESMStatus(val={'ESMHeader': bearer(5, 0), 'ESMCause': b'\x2b'}))
put('service-request', emm.EMMServiceRequest(val={
    'EMMHeaderServ': {'SecHdr': 12}, 'KSI': 2, 'SeqnShort': 5, 'MACShort': b'\xbe\xef'}))
put('protected-attach-complete', sec(2, 0x01020304, 9, complete))
put('protected-new-context', sec(3, 0xdeadbeef, 0, command))
put('ciphered-new-context', sec(4, 0xcafebabe, 0, smc))
