#!/usr/bin/env python3
"""Writes golden.txt, S1AP messages made by pycrate 0.8.1 (PyPI, LGPL-2.1):

    python3 -m venv venv && venv/bin/pip install pycrate==0.8.1
    venv/bin/python golden.py > golden.txt

With an argument it reads messages of the same format from standard input, decodes
each, and fails unless pycrate encodes the decoded values to the same octets.

A line has the name of a message and its octets.
"""
import struct
import sys
from pycrate_asn1dir import S1AP

PDU = S1AP.S1AP_PDU_Descriptions.S1AP_PDU
PLMN, OTHER = bytes.fromhex('00f110'), bytes.fromhex('130014')
TAC = struct.pack('>H', 12345)
TAI = {'pLMNidentity': PLMN, 'tAC': TAC}
ECGI = {'pLMNidentity': PLMN, 'cell-ID': (0x19b01, 28)}
ENB = {'pLMNidentity': PLMN, 'eNB-ID': ('macroENB-ID', (0x19b, 20))}
HOME = {'pLMNidentity': OTHER, 'eNB-ID': ('homeENB-ID', (0x1234567, 28))}
STMSI = {'mMEC': b'\x03', 'm-TMSI': bytes.fromhex('deadbeef')}
V4, V6 = (0x7f000007, 32), (0x20010db8 << 96 | 1, 128)
BOTH = (V4[0] << 128 | V6[0], 160)
TEID = bytes.fromhex('01020304')
NAS = bytes.fromhex('0741710809101010325476980' + '2a0200003000000')
LONG = bytes(range(256)) * 2
ARP = {'priorityLevel': 8, 'pre-emptionCapability': 'shall-not-trigger-pre-emption', 'pre-emptionVulnerability': 'pre-emptable'}
QOS = {'qCI': 9, 'allocationRetentionPriority': ARP}
GBR = {'qCI': 1, 'allocationRetentionPriority': {**ARP, 'priorityLevel': 2, 'pre-emptionCapability': 'may-trigger-pre-emption'},
       'gbrQosInformation': {'e-RAB-MaximumBitrateDL': 10000000000, 'e-RAB-MaximumBitrateUL': 64000,
                             'e-RAB-GuaranteedBitrateDL': 255, 'e-RAB-GuaranteedBitrateUL': 0}}
CAPABILITIES = {'encryptionAlgorithms': (0xe000, 16), 'integrityProtectionAlgorithms': (0x6000, 16)}
KEY = (int.from_bytes(bytes(range(32)), 'big'), 256)
AMBR = {'uEaggregateMaximumBitRateDL': 256000000, 'uEaggregateMaximumBitRateUL': 48000000}
MME, UE = (0, 'MME-UE-S1AP-ID'), (8, 'ENB-UE-S1AP-ID')


def ids(mme, enb, criticality='reject'):
    return [(0, criticality, ('MME-UE-S1AP-ID', mme)), (8, criticality, ('ENB-UE-S1AP-ID', enb))]


def items(*values):
    return [{'id': i, 'criticality': c, 'value': (n, v)} for i, c, n, v in values]


def message(name, kind, code, criticality, container, ies):
    PDU.set_val((kind, {'procedureCode': code, 'criticality': criticality, 'value': (container, {
        'protocolIEs': [{'id': i, 'criticality': c, 'value': v} for i, c, v in ies]})}))
    print(name, PDU.to_aper().hex())


def write():
    first, good, bad = 'initiatingMessage', 'successfulOutcome', 'unsuccessfulOutcome'
    print('# Made by golden.py with pycrate 0.8.1.')
    message('s1-setup-request', first, 17, 'reject', 'S1SetupRequest', [
        (59, 'reject', ('Global-ENB-ID', ENB)), (60, 'ignore', ('ENBname', 'emu')),
        (64, 'reject', ('SupportedTAs', [{'tAC': TAC, 'broadcastPLMNs': [PLMN]}, {'tAC': b'\0\1', 'broadcastPLMNs': [PLMN, OTHER]}])),
        (137, 'ignore', ('PagingDRX', 'v64'))])
    message('s1-setup-request-home', first, 17, 'reject', 'S1SetupRequest', [
        (59, 'reject', ('Global-ENB-ID', HOME)), (64, 'reject', ('SupportedTAs', [{'tAC': TAC, 'broadcastPLMNs': [PLMN]}])),
        (137, 'ignore', ('PagingDRX', 'v256'))])
    message('s1-setup-response', good, 17, 'reject', 'S1SetupResponse', [
        (61, 'ignore', ('MMEname', 'a name of an MME')),
        (105, 'reject', ('ServedGUMMEIs', [{'servedPLMNs': [PLMN], 'servedGroupIDs': [b'\x80\1'], 'servedMMECs': [b'\3']}])),
        (87, 'ignore', ('RelativeMMECapacity', 255))])
    message('s1-setup-failure', bad, 17, 'reject', 'S1SetupFailure', [
        (2, 'ignore', ('Cause', ('misc', 'unknown-PLMN'))), (65, 'ignore', ('TimeToWait', 'v10s'))])
    message('initial-ue-message', first, 12, 'ignore', 'InitialUEMessage', [
        (8, 'reject', ('ENB-UE-S1AP-ID', 7)), (26, 'reject', ('NAS-PDU', NAS)), (67, 'reject', ('TAI', TAI)),
        (100, 'ignore', ('EUTRAN-CGI', ECGI)), (134, 'ignore', ('RRC-Establishment-Cause', 'mo-Signalling')),
        (96, 'reject', ('S-TMSI', STMSI)),
        (75, 'reject', ('GUMMEI', {'pLMN-Identity': PLMN, 'mME-Group-ID': b'\x80\1', 'mME-Code': b'\3'}))])
    message('initial-ue-message-extension', first, 12, 'ignore', 'InitialUEMessage', [
        (8, 'reject', ('ENB-UE-S1AP-ID', 0xffffff)), (26, 'reject', ('NAS-PDU', b'\1')), (67, 'reject', ('TAI', TAI)),
        (100, 'ignore', ('EUTRAN-CGI', ECGI)), (134, 'ignore', ('RRC-Establishment-Cause', 'mo-VoiceCall'))])
    message('downlink-nas-transport', first, 11, 'ignore', 'DownlinkNASTransport', ids(0xffffffff, 0) + [(26, 'reject', ('NAS-PDU', LONG))])
    message('uplink-nas-transport', first, 13, 'ignore', 'UplinkNASTransport', ids(256, 65536) + [
        (26, 'reject', ('NAS-PDU', NAS)), (100, 'ignore', ('EUTRAN-CGI', ECGI)), (67, 'ignore', ('TAI', TAI))])
    message('initial-context-setup-request', first, 9, 'reject', 'InitialContextSetupRequest', ids(1, 2) + [
        (66, 'reject', ('UEAggregateMaximumBitrate', AMBR)),
        (24, 'reject', ('E-RABToBeSetupListCtxtSUReq', items(
            (52, 'reject', 'E-RABToBeSetupItemCtxtSUReq', {'e-RAB-ID': 5, 'e-RABlevelQoSParameters': QOS, 'transportLayerAddress': V4,
                                                           'gTP-TEID': TEID, 'nAS-PDU': NAS}),
            (52, 'reject', 'E-RABToBeSetupItemCtxtSUReq', {'e-RAB-ID': 15, 'e-RABlevelQoSParameters': GBR, 'transportLayerAddress': BOTH,
                                                           'gTP-TEID': TEID})))),
        (107, 'reject', ('UESecurityCapabilities', CAPABILITIES)), (73, 'reject', ('SecurityKey', KEY)),
        (74, 'ignore', ('UERadioCapability', LONG))])
    message('initial-context-setup-response', good, 9, 'reject', 'InitialContextSetupResponse', ids(1, 2, 'ignore') + [
        (51, 'ignore', ('E-RABSetupListCtxtSURes', items(
            (50, 'ignore', 'E-RABSetupItemCtxtSURes', {'e-RAB-ID': 5, 'transportLayerAddress': V6, 'gTP-TEID': TEID})))),
        (48, 'ignore', ('E-RABList', items((35, 'ignore', 'E-RABItem', {'e-RAB-ID': 6, 'cause': ('radioNetwork', 'unspecified')}))))])
    message('initial-context-setup-failure', bad, 9, 'reject', 'InitialContextSetupFailure', ids(1, 2, 'ignore') + [
        (2, 'ignore', ('Cause', ('radioNetwork', 'radio-connection-with-ue-lost')))])
    message('ue-context-release-request', first, 18, 'ignore', 'UEContextReleaseRequest', ids(1, 2) + [
        (2, 'ignore', ('Cause', ('radioNetwork', 'user-inactivity')))])
    message('ue-context-release-command', first, 23, 'reject', 'UEContextReleaseCommand', [
        (99, 'reject', ('UE-S1AP-IDs', ('uE-S1AP-ID-pair', {'mME-UE-S1AP-ID': 1, 'eNB-UE-S1AP-ID': 2}))),
        (2, 'ignore', ('Cause', ('nas', 'detach')))])
    message('ue-context-release-command-mme', first, 23, 'reject', 'UEContextReleaseCommand', [
        (99, 'reject', ('UE-S1AP-IDs', ('mME-UE-S1AP-ID', 70000))),
        (2, 'ignore', ('Cause', ('radioNetwork', 'n26-interface-not-available')))])
    message('ue-context-release-complete', good, 23, 'reject', 'UEContextReleaseComplete', ids(1, 2, 'ignore'))
    message('path-switch-request', first, 3, 'reject', 'PathSwitchRequest', [
        (8, 'reject', ('ENB-UE-S1AP-ID', 3)),
        (22, 'reject', ('E-RABToBeSwitchedDLList', items(
            (23, 'reject', 'E-RABToBeSwitchedDLItem', {'e-RAB-ID': 5, 'transportLayerAddress': V4, 'gTP-TEID': TEID})))),
        (88, 'reject', ('MME-UE-S1AP-ID', 1)), (100, 'ignore', ('EUTRAN-CGI', ECGI)), (67, 'ignore', ('TAI', TAI)),
        (107, 'ignore', ('UESecurityCapabilities', CAPABILITIES))])
    message('path-switch-acknowledge', good, 3, 'reject', 'PathSwitchRequestAcknowledge', ids(1, 3, 'ignore') + [
        (95, 'ignore', ('E-RABToBeSwitchedULList', items(
            (94, 'ignore', 'E-RABToBeSwitchedULItem', {'e-RAB-ID': 5, 'transportLayerAddress': V4, 'gTP-TEID': TEID})))),
        (40, 'reject', ('SecurityContext', {'nextHopChainingCount': 5, 'nextHopParameter': KEY}))])
    message('path-switch-failure', bad, 3, 'reject', 'PathSwitchRequestFailure', ids(1, 3, 'ignore') + [
        (2, 'ignore', ('Cause', ('protocol', 'semantic-error')))])
    message('handover-required', first, 0, 'reject', 'HandoverRequired', ids(1, 2) + [
        (1, 'reject', ('HandoverType', 'intralte')), (2, 'ignore', ('Cause', ('radioNetwork', 'handover-desirable-for-radio-reason'))),
        (4, 'reject', ('TargetID', ('targeteNB-ID', {'global-ENB-ID': ENB, 'selected-TAI': TAI}))),
        (104, 'reject', ('Source-ToTarget-TransparentContainer', LONG))])
    message('handover-request', first, 1, 'reject', 'HandoverRequest', [
        (0, 'reject', ('MME-UE-S1AP-ID', 9)), (1, 'reject', ('HandoverType', 'intralte')),
        (2, 'ignore', ('Cause', ('radioNetwork', 'handover-desirable-for-radio-reason'))),
        (66, 'reject', ('UEAggregateMaximumBitrate', AMBR)),
        (53, 'reject', ('E-RABToBeSetupListHOReq', items(
            (27, 'reject', 'E-RABToBeSetupItemHOReq', {'e-RAB-ID': 5, 'transportLayerAddress': V4, 'gTP-TEID': TEID, 'e-RABlevelQosParameters': QOS})))),
        (104, 'reject', ('Source-ToTarget-TransparentContainer', LONG)), (107, 'reject', ('UESecurityCapabilities', CAPABILITIES)),
        (40, 'reject', ('SecurityContext', {'nextHopChainingCount': 1, 'nextHopParameter': KEY}))])
    message('handover-request-acknowledge', good, 1, 'reject', 'HandoverRequestAcknowledge', ids(9, 4, 'ignore') + [
        (18, 'ignore', ('E-RABAdmittedList', items(
            (20, 'ignore', 'E-RABAdmittedItem', {'e-RAB-ID': 5, 'transportLayerAddress': V4, 'gTP-TEID': TEID,
                                                 'dL-transportLayerAddress': V4, 'dL-gTP-TEID': TEID,
                                                 'uL-TransportLayerAddress': V6, 'uL-GTP-TEID': TEID}),
            (20, 'ignore', 'E-RABAdmittedItem', {'e-RAB-ID': 6, 'transportLayerAddress': V4, 'gTP-TEID': TEID})))),
        (19, 'ignore', ('E-RABFailedtoSetupListHOReqAck', items(
            (21, 'ignore', 'E-RABFailedToSetupItemHOReqAck', {'e-RAB-ID': 7, 'cause': ('transport', 'unspecified')})))),
        (123, 'reject', ('Target-ToSource-TransparentContainer', NAS))])
    message('handover-command', good, 0, 'reject', 'HandoverCommand', ids(1, 2) + [
        (1, 'reject', ('HandoverType', 'intralte')),
        (12, 'ignore', ('E-RABSubjecttoDataForwardingList', items(
            (14, 'ignore', 'E-RABDataForwardingItem', {'e-RAB-ID': 5, 'dL-transportLayerAddress': V4, 'dL-gTP-TEID': TEID})))),
        (123, 'reject', ('Target-ToSource-TransparentContainer', NAS))])
    message('handover-notify', first, 2, 'ignore', 'HandoverNotify', ids(9, 4) + [
        (100, 'ignore', ('EUTRAN-CGI', ECGI)), (67, 'ignore', ('TAI', TAI))])
    message('e-rab-setup-request', first, 5, 'reject', 'E-RABSetupRequest', ids(1, 2) + [
        (16, 'reject', ('E-RABToBeSetupListBearerSUReq', items(
            (17, 'reject', 'E-RABToBeSetupItemBearerSUReq', {'e-RAB-ID': 6, 'e-RABlevelQoSParameters': GBR, 'transportLayerAddress': V4,
                                                             'gTP-TEID': TEID, 'nAS-PDU': NAS}))))])
    message('e-rab-setup-response', good, 5, 'reject', 'E-RABSetupResponse', ids(1, 2, 'ignore') + [
        (28, 'ignore', ('E-RABSetupListBearerSURes', items(
            (39, 'ignore', 'E-RABSetupItemBearerSURes', {'e-RAB-ID': 6, 'transportLayerAddress': V4, 'gTP-TEID': TEID}))))])
    message('e-rab-setup-response-failed', good, 5, 'reject', 'E-RABSetupResponse', ids(1, 2, 'ignore') + [
        (29, 'ignore', ('E-RABList', items((35, 'ignore', 'E-RABItem', {'e-RAB-ID': 6, 'cause': ('radioNetwork', 'radio-resources-not-available')}))))])
    message('e-rab-release-command', first, 7, 'reject', 'E-RABReleaseCommand', ids(1, 2) + [
        (66, 'reject', ('UEAggregateMaximumBitrate', AMBR)),
        (33, 'ignore', ('E-RABList', items((35, 'ignore', 'E-RABItem', {'e-RAB-ID': 6, 'cause': ('nas', 'normal-release')})))),
        (26, 'ignore', ('NAS-PDU', NAS))])
    message('e-rab-release-response', good, 7, 'reject', 'E-RABReleaseResponse', ids(1, 2, 'ignore') + [
        (69, 'ignore', ('E-RABReleaseListBearerRelComp', items(
            (15, 'ignore', 'E-RABReleaseItemBearerRelComp', {'e-RAB-ID': 6}))))])
    message('reset', first, 14, 'reject', 'Reset', [
        (2, 'ignore', ('Cause', ('misc', 'om-intervention'))), (92, 'reject', ('ResetType', ('s1-Interface', 'reset-all')))])
    message('reset-part', first, 14, 'reject', 'Reset', [
        (2, 'ignore', ('Cause', ('radioNetwork', 'release-due-to-eutran-generated-reason'))),
        (92, 'reject', ('ResetType', ('partOfS1-Interface', items(
            (91, 'reject', 'UE-associatedLogicalS1-ConnectionItem', {'mME-UE-S1AP-ID': 70000, 'eNB-UE-S1AP-ID': 2}),
            (91, 'reject', 'UE-associatedLogicalS1-ConnectionItem', {'eNB-UE-S1AP-ID': 0xffffff}),
            (91, 'reject', 'UE-associatedLogicalS1-ConnectionItem', {'mME-UE-S1AP-ID': 1})))))])
    message('reset-acknowledge', good, 14, 'reject', 'ResetAcknowledge', [])
    message('reset-acknowledge-part', good, 14, 'reject', 'ResetAcknowledge', [
        (93, 'ignore', ('UE-associatedLogicalS1-ConnectionListResAck', items(
            (91, 'ignore', 'UE-associatedLogicalS1-ConnectionItem', {'mME-UE-S1AP-ID': 70000, 'eNB-UE-S1AP-ID': 2}),
            (91, 'ignore', 'UE-associatedLogicalS1-ConnectionItem', {'eNB-UE-S1AP-ID': 0xffffff}))))])
    message('paging', first, 10, 'ignore', 'Paging', [
        (80, 'ignore', ('UEIdentityIndexValue', (777, 10))), (43, 'ignore', ('UEPagingID', ('s-TMSI', STMSI))),
        (109, 'ignore', ('CNDomain', 'ps')),
        (46, 'ignore', ('TAIList', items((47, 'ignore', 'TAIItem', {'tAI': TAI}), (47, 'ignore', 'TAIItem', {'tAI': {'pLMNidentity': OTHER, 'tAC': b'\0\1'}}))))])
    message('paging-imsi', first, 10, 'ignore', 'Paging', [
        (80, 'ignore', ('UEIdentityIndexValue', (1023, 10))), (43, 'ignore', ('UEPagingID', ('iMSI', bytes.fromhex('00101032547698f0')))),
        (44, 'ignore', ('PagingDRX', 'v32')), (109, 'ignore', ('CNDomain', 'cs')),
        (46, 'ignore', ('TAIList', items((47, 'ignore', 'TAIItem', {'tAI': TAI}))))])
    message('error-indication', first, 15, 'ignore', 'ErrorIndication', ids(1, 2, 'ignore') + [
        (2, 'ignore', ('Cause', ('protocol', 'transfer-syntax-error')))])


def check():
    count = 0
    for line in sys.stdin:
        name, octets = line.split()
        PDU.from_aper(bytes.fromhex(octets))
        value = PDU.get_val()
        PDU.set_val(value)
        if PDU.to_aper().hex() != octets:
            sys.exit('%s: %s; pycrate writes %s' % (name, octets, PDU.to_aper().hex()))
        count += 1
    print('pycrate reads and writes', count, 'messages')


if len(sys.argv) > 1:
    check()
else:
    write()
