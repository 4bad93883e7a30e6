import type { AmphoraFacts, PluggedInterface } from '../../controller/provider/amphora/rendering/facts.js'
import type {
  HealthMonitorNode,
  ListenerNode,
  LoadBalancerTree,
  MemberNode,
  PoolNode,
} from '../../controller/load-balancer/tree/tree.js'

/** A readable UUID: one digit gives the kind, the last ones the number. */
export const uuid = (kind: number, number: number) =>
  `${String(kind).repeat(8)}-0000-4000-8000-${String(number).padStart(12, '0')}`

export function aTree(change: Partial<LoadBalancerTree> = {}): LoadBalancerTree {
  return {
    id: uuid(1, 1),
    projectId: 'b7b1c0ffee00463aa4c4ddba6ea3a3b1',
    name: 'never rendered\n',
    adminStateUp: true,
    provider: 'amphora',
    topology: 'SINGLE',
    vip: { address: '203.0.113.10', subnetId: uuid(7, 1), networkId: uuid(8, 1), portId: uuid(9, 1), ownsPort: true, securityGroups: [] },
    additionalVips: [],
    generation: 7,
    appliedGeneration: 6,
    change: 'update',
    material: [],
    challenges: [],
    mismatches: [],
    boundSha256: null,
    listeners: [],
    pools: [],
    ...change,
  }
}

export function aListener(number: number, change: Partial<ListenerNode> = {}): ListenerNode {
  return {
    id: uuid(2, number),
    change: 'create',
    adminStateUp: true,
    protocol: 'HTTP',
    protocolPort: 8000 + number,
    connectionLimit: -1,
    defaultPoolId: null,
    insertHeaders: {},
    timeoutClientData: 50_000,
    timeoutMemberConnect: 5_000,
    timeoutMemberData: 50_000,
    timeoutTcpInspect: 0,
    allowedCidrs: null,
    defaultTlsContainerRef: null,
    sniContainerRefs: [],
    clientCaTlsContainerRef: null,
    clientAuthentication: 'NONE',
    clientCrlContainerRef: null,
    tlsCiphers: null,
    tlsVersions: null,
    alpnProtocols: null,
    hstsMaxAge: null,
    hstsIncludeSubdomains: false,
    hstsPreload: false,
    l7Policies: [],
    ...change,
  }
}

export function aPool(number: number, change: Partial<PoolNode> = {}): PoolNode {
  return {
    id: uuid(3, number),
    change: 'create',
    adminStateUp: true,
    protocol: 'HTTP',
    lbAlgorithm: 'ROUND_ROBIN',
    deregistrationDelay: 30,
    tlsEnabled: false,
    tlsContainerRef: null,
    caTlsContainerRef: null,
    crlContainerRef: null,
    tlsCiphers: null,
    tlsVersions: null,
    alpnProtocols: null,
    sessionPersistence: null,
    healthMonitor: null,
    members: [],
    ...change,
  }
}

export function aMember(number: number, change: Partial<MemberNode> = {}): MemberNode {
  return {
    id: uuid(4, number),
    change: 'create',
    serverNumber: number,
    name: '',
    adminStateUp: true,
    isDown: false,
    address: `192.0.2.${number}`,
    protocolPort: 80,
    weight: 1,
    backup: false,
    subnetId: null,
    monitorAddress: null,
    monitorPort: null,
    ...change,
  }
}

export function aMonitor(number: number, change: Partial<HealthMonitorNode> = {}): HealthMonitorNode {
  return {
    id: uuid(5, number),
    change: 'create',
    adminStateUp: true,
    type: 'HTTP',
    delay: 5,
    timeout: 3,
    maxRetries: 2,
    maxRetriesDown: 3,
    httpMethod: 'GET',
    urlPath: '/health',
    expectedCodes: '200',
    httpVersion: null,
    domainName: null,
    ...change,
  }
}

export function aVipInterface(change: Partial<PluggedInterface> = {}): PluggedInterface {
  return {
    purpose: 'vip',
    port: {
      id: 'a1b2c3d4-0000-4000-8000-000000000001',
      networkId: uuid(8, 1),
      projectId: '',
      name: '',
      macAddress: 'FA:16:3E:00:00:01',
      deviceId: uuid(6, 1),
      deviceOwner: 'Octavia:amphora',
      fixedIps: [{ subnetId: uuid(7, 1), address: '203.0.113.21' }],
      allowedAddresses: [],
      securityGroups: [],
    },
    subnets: [
      {
        id: uuid(7, 1),
        networkId: uuid(8, 1),
        projectId: '',
        ipVersion: 4,
        cidr: '203.0.113.0/24',
        gatewayIp: '203.0.113.1',
        hostRoutes: [],
        overlapsManagement: false,
      },
    ],
    mtu: 1500,
    ...change,
  }
}

export function aMemberInterface(): PluggedInterface {
  return {
    purpose: 'member',
    port: {
      id: 'e5f60718-0000-4000-8000-000000000002',
      networkId: uuid(8, 2),
      projectId: '',
      name: '',
      macAddress: 'fa:16:3e:00:00:02',
      deviceId: uuid(6, 1),
      deviceOwner: 'Octavia:amphora',
      fixedIps: [{ subnetId: uuid(7, 2), address: '192.0.2.250' }],
      allowedAddresses: [],
      securityGroups: [],
    },
    subnets: [
      {
        id: uuid(7, 2),
        networkId: uuid(8, 2),
        projectId: '',
        ipVersion: 4,
        cidr: '192.0.2.0/24',
        gatewayIp: '192.0.2.1',
        hostRoutes: [{ destination: '198.51.100.0/24', nexthop: '192.0.2.9' }],
        overlapsManagement: false,
      },
    ],
    mtu: 1450,
  }
}

export function someFacts(change: Partial<AmphoraFacts> = {}): AmphoraFacts {
  return {
    amphoraId: uuid(6, 1),
    fence: 3,
    haproxyVersion: '2.6.12-1+deb12u4',
    answersMetrics: true,
    readsMaterial: true,
    balancesDatagrams: true,
    limits: { openFiles: 18_300, memoryBytes: 24 * 1024 ** 3 },
    oldWorkers: { most: 50, memoryMib: 512 },
    logRequests: false,
    interfaces: [aVipInterface()],
    pair: null,
    ...change,
  }
}

/** An IPv6 VIP on an interface that carries it. */
export const IPV6_VIP = {
  vip: { address: '2001:db8:1::10', subnetId: uuid(7, 6), networkId: uuid(8, 1), portId: uuid(9, 1), ownsPort: true, securityGroups: [] },
}

export function aDualStackVipInterface(): PluggedInterface {
  const nic = aVipInterface()
  return {
    ...nic,
    port: { ...nic.port, fixedIps: [...nic.port.fixedIps, { subnetId: uuid(7, 6), address: '2001:db8:1::21' }] },
    subnets: [
      ...nic.subnets,
      {
        id: uuid(7, 6),
        networkId: uuid(8, 1),
        projectId: '',
        ipVersion: 6,
        cidr: '2001:db8:1::/64',
        gatewayIp: '2001:db8:1::1',
        hostRoutes: [{ destination: '2001:db8:ffff::/48', nexthop: '2001:db8:1::9' }],
        overlapsManagement: false,
      },
    ],
  }
}
