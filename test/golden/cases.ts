import type { LoadBalancerTree } from '../../controller/load-balancer/tree/tree.js'
import type { AmphoraFacts } from '../../controller/provider/amphora/rendering/facts.js'
import { datagramCases } from './datagram-cases.js'
import { l7Cases } from './l7-cases.js'
import {
  aDualStackVipInterface,
  aListener,
  aMember,
  aMemberInterface,
  aMonitor,
  aPool,
  aTree,
  IPV6_VIP,
  someFacts,
  uuid,
} from './models.js'
import { optionCases } from './option-cases.js'
import { tlsCases } from './tls-cases.js'

export type GoldenCase = { name: string; tree: LoadBalancerTree; facts: AmphoraFacts }

/**
 * What each golden file shows. The configuration is in <name>.cfg, and in <name>.keepalived.conf for a pair; what it
 * reads for TLS is in <name>.tls.json, and what the agent balances itself in <name>.datagrams.json.
 */
export const goldenCases: GoldenCase[] = [
  {
    name: 'http-round-robin',
    facts: someFacts(),
    tree: aTree({
      listeners: [aListener(1, { defaultPoolId: uuid(3, 1), protocolPort: 80 })],
      pools: [aPool(1, { members: [aMember(1, { weight: 10 }), aMember(2, { weight: 0, protocolPort: 8080 })] })],
    }),
  },
  {
    name: 'http-monitor',
    facts: someFacts({ interfaces: [aMemberInterface(), ...someFacts().interfaces] }),
    tree: aTree({
      listeners: [aListener(1, { defaultPoolId: uuid(3, 1), protocolPort: 80 })],
      pools: [
        aPool(1, {
          lbAlgorithm: 'LEAST_CONNECTIONS',
          healthMonitor: aMonitor(1, {
            httpMethod: 'HEAD',
            urlPath: `/it's?q="#%20$HOME\\`,
            expectedCodes: '200, 202 ,301',
            httpVersion: 1.1,
            domainName: 'www.example.org',
          }),
          members: [
            aMember(1),
            aMember(2, { backup: true }),
            aMember(3, { adminStateUp: false }),
            aMember(4, { monitorAddress: '192.0.2.99', monitorPort: 9000 }),
            aMember(5, { change: 'delete' }),
          ],
        }),
      ],
    }),
  },
  {
    name: 'tcp-monitor-source-ip',
    facts: someFacts(),
    tree: aTree({
      listeners: [
        aListener(1, { protocol: 'TCP', defaultPoolId: uuid(3, 1), protocolPort: 5432, timeoutTcpInspect: 250 }),
      ],
      pools: [
        aPool(1, {
          protocol: 'TCP',
          lbAlgorithm: 'SOURCE_IP',
          healthMonitor: aMonitor(1, { type: 'TCP', delay: 0, timeout: 0, maxRetries: 1, maxRetriesDown: 10 }),
          members: [aMember(1), aMember(2)],
        }),
      ],
    }),
  },
  {
    name: 'tcp-listener-http-pool',
    facts: someFacts(),
    tree: aTree({
      listeners: [aListener(1, { protocol: 'TCP', defaultPoolId: uuid(3, 1), timeoutClientData: 0 })],
      pools: [
        aPool(1, {
          healthMonitor: aMonitor(1, { expectedCodes: '200-299', urlPath: null, httpMethod: null }),
          members: [aMember(1)],
        }),
      ],
    }),
  },
  {
    name: 'inserted-headers-and-limits',
    facts: someFacts(),
    tree: aTree({
      listeners: [
        aListener(1, {
          defaultPoolId: uuid(3, 1),
          connectionLimit: 100,
          timeoutClientData: 1_000,
          timeoutMemberConnect: 2_000,
          timeoutMemberData: 2_073_600_000,
          insertHeaders: {
            'X-Forwarded-For': 'true',
            'X-Forwarded-Port': 'true',
            'X-Forwarded-Proto': 'True',
            'X-Forwarded-IP': 'true',
            'X-Client-IP': 'true',
            'X-Real-IP': 'true',
          },
        }),
        aListener(2, { connectionLimit: 200, insertHeaders: { 'X-Forwarded-For': 'false' } }),
      ],
      pools: [aPool(1, { members: [aMember(1)] })],
    }),
  },
  {
    name: 'shared-and-unusable-pools',
    facts: someFacts({ limits: { openFiles: 600_000, memoryBytes: 24 * 1024 ** 3 } }),
    tree: aTree({
      listeners: [
        aListener(1, { defaultPoolId: uuid(3, 1) }),
        aListener(2, { defaultPoolId: uuid(3, 1), protocol: 'TCP' }),
        aListener(3, { defaultPoolId: uuid(3, 2) }),
        aListener(4, { defaultPoolId: uuid(3, 3) }),
        aListener(5, { defaultPoolId: uuid(3, 4) }),
        aListener(6, { defaultPoolId: null, protocol: 'TCP' }),
        aListener(7, { adminStateUp: false, defaultPoolId: uuid(3, 1) }),
        aListener(8, { change: 'delete', defaultPoolId: uuid(3, 1) }),
      ],
      pools: [
        aPool(1, { members: [aMember(1)] }),
        aPool(2, { adminStateUp: false, members: [aMember(2)] }),
        aPool(3, { change: 'delete', members: [aMember(3)] }),
        aPool(4, { healthMonitor: aMonitor(4, { change: 'delete' }) }),
        aPool(5, { members: [aMember(5)] }),
      ],
    }),
  },
  {
    name: 'ipv6',
    facts: someFacts({ interfaces: [aDualStackVipInterface()] }),
    tree: aTree({
      ...IPV6_VIP,
      listeners: [aListener(1, { defaultPoolId: uuid(3, 1), protocolPort: 80 })],
      pools: [
        aPool(1, {
          healthMonitor: aMonitor(1, { httpVersion: 1.1 }),
          members: [
            aMember(1, { address: '2001:DB8:0:0::1' }),
            aMember(2, { address: '2001:db8::2', monitorAddress: '2001:db8::99', monitorPort: 81 }),
          ],
        }),
      ],
    }),
  },
  {
    name: 'pair',
    facts: someFacts({
      pair: { priority: 100, vrrpAddress: '203.0.113.21', peers: [{ amphoraId: uuid(6, 2), address: '203.0.113.22' }] },
    }),
    tree: aTree({
      topology: 'ACTIVE_STANDBY',
      listeners: [aListener(1, { defaultPoolId: uuid(3, 1), protocolPort: 80 })],
      pools: [aPool(1, { healthMonitor: aMonitor(1, { adminStateUp: false }), members: [aMember(1)] })],
    }),
  },
  {
    name: 'pair-ipv6',
    facts: someFacts({
      interfaces: [aDualStackVipInterface()],
      pair: { priority: 90, vrrpAddress: '2001:db8:1::22', peers: [{ amphoraId: uuid(6, 2), address: '2001:db8:1::21' }] },
    }),
    tree: aTree({ ...IPV6_VIP, topology: 'ACTIVE_STANDBY' }),
  },
  ...datagramCases,
  ...l7Cases,
  ...optionCases,
  ...tlsCases,
]
