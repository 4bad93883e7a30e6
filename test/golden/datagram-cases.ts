import type { GoldenCase } from './cases.js'
import { aDualStackVipInterface, aListener, aMember, aMonitor, aPool, aTree, someFacts, uuid } from './models.js'

const sourceIp = (persistenceTimeout: number | null, persistenceGranularity: string | null) => ({
  ...{ type: 'SOURCE_IP' as const, cookieName: null },
  ...{ persistenceTimeout, persistenceGranularity },
})

/** UDP and SCTP. What the agent balances is in <name>.datagrams.json. */
export const datagramCases: GoldenCase[] = [
  {
    name: 'datagrams',
    facts: someFacts({
      interfaces: [aDualStackVipInterface()],
      limits: { openFiles: 18_300, memoryBytes: 24 * 1024 ** 3, flows: 100_000 },
    }),
    tree: aTree({
      additionalVips: [{ address: '2001:DB8:1::10', subnetId: uuid(7, 6) }],
      listeners: [
        aListener(1, { protocol: 'TCP', protocolPort: 53, defaultPoolId: uuid(3, 1) }),
        aListener(2, { protocol: 'UDP', protocolPort: 53, defaultPoolId: uuid(3, 2), connectionLimit: 1_000 }),
        aListener(3, {
          protocol: 'SCTP',
          protocolPort: 53,
          defaultPoolId: uuid(3, 3),
          allowedCidrs: ['2001:DB8::/32', '198.51.100.0/24'],
          timeoutClientData: 1_500,
        }),
        aListener(4, { protocol: 'UDP', protocolPort: 54, defaultPoolId: uuid(3, 2), connectionLimit: 0 }),
        aListener(5, { protocol: 'UDP', protocolPort: 55, defaultPoolId: uuid(3, 4), timeoutClientData: 0 }),
        aListener(6, { protocol: 'UDP', protocolPort: 56, adminStateUp: false, defaultPoolId: uuid(3, 2) }),
        aListener(7, { protocol: 'UDP', protocolPort: 57, change: 'delete', defaultPoolId: uuid(3, 2) }),
        aListener(8, { protocol: 'UDP', protocolPort: 58, timeoutClientData: 2_073_600_000 }),
        aListener(9, { protocol: 'UDP', protocolPort: 59, defaultPoolId: uuid(3, 6) }),
      ],
      pools: [
        aPool(1, { protocol: 'TCP', members: [aMember(1)] }),
        aPool(2, {
          protocol: 'UDP',
          sessionPersistence: sourceIp(null, '255.255.255.0'),
          healthMonitor: aMonitor(2, { type: 'UDP-CONNECT', urlPath: '/%00%01ping%3F?%80ok?%25', delay: 3 }),
          members: [
            aMember(12, { weight: 0 }),
            aMember(11, { weight: 256, address: '192.0.2.11', protocolPort: 5353 }),
            aMember(13, { adminStateUp: false }),
            aMember(14, { backup: true, address: '2001:DB8:0:0::4' }),
            aMember(15, { monitorAddress: '192.0.2.99', monitorPort: 9000 }),
            aMember(16, { change: 'delete' }),
          ],
        }),
        aPool(3, {
          protocol: 'SCTP',
          lbAlgorithm: 'SOURCE_IP_PORT',
          sessionPersistence: sourceIp(60, 'ffff:ffff:ffff:ffff::'),
          healthMonitor: aMonitor(3, {
            httpVersion: 1.1,
            expectedCodes: '200, 202',
            ...{ type: 'HTTP', httpMethod: 'HEAD', urlPath: `/it's?q="#$HOME` },
          }),
        }),
        aPool(4, { protocol: 'UDP', adminStateUp: false, members: [aMember(4)] }),
        aPool(5, { protocol: 'UDP', members: [aMember(5)] }),
        aPool(6, {
          protocol: 'UDP',
          lbAlgorithm: 'SOURCE_IP',
          sessionPersistence: sourceIp(0, null),
          healthMonitor: aMonitor(6, { type: 'UDP-CONNECT', urlPath: null, delay: 0, timeout: 0 }),
          members: [aMember(6)],
        }),
      ],
    }),
  },
  {
    name: 'pair-datagrams',
    facts: someFacts({
      pair: { priority: 100, vrrpAddress: '203.0.113.21', peers: [{ amphoraId: uuid(6, 2), address: '203.0.113.22' }] },
    }),
    tree: aTree({
      topology: 'ACTIVE_STANDBY',
      listeners: [aListener(1, { protocol: 'UDP', protocolPort: 53, defaultPoolId: uuid(3, 1) })],
      pools: [
        aPool(1, {
          protocol: 'UDP',
          lbAlgorithm: 'LEAST_CONNECTIONS',
          healthMonitor: aMonitor(1, { type: 'SCTP', adminStateUp: false }),
          members: [aMember(1)],
        }),
      ],
    }),
  },
]
