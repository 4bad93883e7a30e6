import type { SessionPersistence } from '../../controller/load-balancer/tree/tree.js'
import type { GoldenCase } from './cases.js'
import { aDualStackVipInterface, aListener, aMember, aMonitor, aPool, aTree, someFacts, uuid } from './models.js'

const persistence = (type: SessionPersistence['type'], cookieName: string | null = null): SessionPersistence => ({
  type,
  cookieName,
  persistenceTimeout: null,
  persistenceGranularity: null,
})

const DUAL_STACK = {
  additionalVips: [{ address: '2001:db8:1::10', subnetId: uuid(7, 6) }],
  listeners: [aListener(1, { allowedCidrs: ['198.51.100.0/24', '2001:db8::/32'] })],
}

/** Options of listeners, pools and monitors, a few in each file. */
export const optionCases: GoldenCase[] = [
  { name: 'additional-vips', facts: someFacts({ interfaces: [aDualStackVipInterface()] }), tree: aTree(DUAL_STACK) },
  {
    name: 'pair-additional-vips',
    facts: someFacts({
      interfaces: [aDualStackVipInterface()],
      pair: { priority: 100, vrrpAddress: '203.0.113.21', peers: [{ amphoraId: uuid(6, 2), address: '203.0.113.22' }] },
    }),
    tree: aTree({
      ...DUAL_STACK,
      topology: 'ACTIVE_STANDBY',
      listeners: [aListener(1, { defaultPoolId: uuid(3, 1) })],
      pools: [aPool(1, { sessionPersistence: persistence('SOURCE_IP'), members: [aMember(1)] })],
    }),
  },
  {
    name: 'metrics-and-pass-through',
    facts: someFacts(),
    tree: aTree({
      listeners: [
        aListener(1, { protocol: 'PROMETHEUS', allowedCidrs: ['198.51.100.0/24'], connectionLimit: 10 }),
        aListener(2, { protocol: 'HTTPS', defaultPoolId: uuid(3, 2) }),
      ],
      pools: [
        aPool(2, {
          protocol: 'HTTPS',
          healthMonitor: aMonitor(2, { type: 'HTTPS', httpVersion: 1.1, domainName: 'www.example.org' }),
          members: [aMember(1), aMember(2, { monitorPort: 8443 })],
        }),
      ],
    }),
  },
  {
    name: 'proxy-protocol',
    facts: someFacts(),
    tree: aTree({
      listeners: [
        aListener(1, { defaultPoolId: uuid(3, 1) }),
        aListener(2, { defaultPoolId: uuid(3, 2), protocol: 'TCP' }),
      ],
      pools: [
        aPool(1, {
          protocol: 'PROXY',
          lbAlgorithm: 'SOURCE_IP_PORT',
          healthMonitor: aMonitor(1, { type: 'TLS-HELLO' }),
          members: [aMember(1), aMember(2, { monitorPort: 9000 })],
        }),
        aPool(2, {
          protocol: 'PROXYV2',
          lbAlgorithm: 'SOURCE_IP_PORT',
          healthMonitor: aMonitor(2, { type: 'PING' }),
          members: [aMember(3), aMember(4, { monitorAddress: '2001:db8::4' })],
        }),
      ],
    }),
  },
  {
    name: 'session-persistence',
    facts: someFacts(),
    tree: aTree({
      listeners: [1, 2, 3, 4].map(number => aListener(number, { defaultPoolId: uuid(3, number) })),
      pools: [
        aPool(1, { sessionPersistence: persistence('HTTP_COOKIE'), members: [aMember(1), aMember(2, { weight: 0 })] }),
        aPool(2, { sessionPersistence: persistence('HTTP_COOKIE', `it's`), members: [aMember(3)] }),
        aPool(3, { sessionPersistence: persistence('APP_COOKIE', `it's`), members: [aMember(4)] }),
        aPool(4, { sessionPersistence: persistence('SOURCE_IP'), members: [aMember(5)] }),
      ],
    }),
  },
  {
    name: 'cookies-without-http',
    facts: someFacts(),
    tree: aTree({
      listeners: [1, 2].map(number => aListener(number, { protocol: 'TCP', defaultPoolId: uuid(3, number) })),
      pools: [
        aPool(1, { sessionPersistence: persistence('HTTP_COOKIE'), members: [aMember(1)] }),
        aPool(2, { protocol: 'TCP', sessionPersistence: persistence('APP_COOKIE', 'sid'), members: [aMember(2)] }),
      ],
    }),
  },
]
