import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { GOPATH, prepareGo } from '../support/clients/gophercloud.js'

const ACCEPTANCE = 'github.com/gophercloud/gophercloud/acceptance/openstack'
const SOURCES = join(GOPATH, 'src', ACCEPTANCE)

/** Loops of the library and of its tests that look every second. */
const shortly = (source: string) =>
  source.replaceAll('time.Sleep(1 * time.Second)', 'time.Sleep(50 * time.Millisecond)')

/** A member's random address may be that of the VIP, which Krater refuses. */
const otherThanVip = (source: string) =>
  source.replace(
    /^\tmemberAddress := (.*)$/m,
    '$&\n\tfor memberAddress == lb.VipAddress {\n\t\tmemberAddress = $1\n\t}',
  )

/**
 * Corrections of acceptance tests that this version of the library's authors made later, or that the real services need
 * too: Octavia inserts headers on HTTP listeners only, and a key that Barbican's worker generates is not there at once.
 */
const CORRECTED: Readonly<Record<string, readonly ((source: string) => string)[]>> = {
  '../../util.go': [shortly],
  '../tools/tools.go': [shortly],
  'loadbalancer/v2/loadbalancer.go': [source => source.replaceAll('ProtocolTCP', 'ProtocolHTTP'), otherThanVip],
  'keymanager/v1/keymanager.go': [
    source =>
      source.replaceAll(
        '\torder, err = orders.Get(client, orderID).Extract()',
        '\tif err := WaitForOrder(client, orderID); err != nil {\n\t\treturn nil, err\n\t}\n\n$&',
      ),
  ],
}

/** The packages with acceptance tests of what Krater offers, and their tests of what it does not offer, by reason. */
const PACKAGES: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  'loadbalancer/v2': {},
  'keymanager/v1': {},
  'identity/v3': {
    'projects that are domains': ['TestProjectsDomain'],
    'access rules on their own': ['TestApplicationCredentialsAccessRules'],
    'names without regard to case, as in MySQL': ['TestTokensGet'],
    'filters without regard to case, which Keystone has not either': ['TestRolesFilterList'],
    'a compute service': ['TestEndpointsNavigateCatalog'],
    'policies, trusts, OAuth, EC2 and S3': [
      'TestPoliciesList',
      'TestPoliciesCRUD',
      'TestTrustCRUD',
      'TestOAuth1CRUD',
      'TestEC2CredentialsCRD',
      'TestCredentialsValidateS3',
    ],
  },
  'networking/v2': {
    'DHCP options': ['TestPortsWithExtraDHCPOptsCRUD'],
    'subnet pools': [
      'TestSubnetsWithSubnetPool',
      'TestSubnetsWithSubnetPoolNoCIDR',
      'TestSubnetsWithSubnetPoolPrefixlen',
    ],
  },
  'networking/v2/extensions': {},
  'networking/v2/extensions/layer3': {
    'address scopes': ['TestAddressScopesCRUD'],
    'port forwardings of floating IPs': ['TestLayer3PortForwardingsCreateDelete'],
    'an address that no real service leaves out of its answer': ['TestLayer3ExternalRouterCreateDelete'],
  },
  'networking/v2/extensions/mtu': { 'an MTU that can be changed': ['TestMTUNetworkCRUDL'] },
  'networking/v2/extensions/networkipavailabilities': {},
  'networking/v2/extensions/portsbinding': { 'hosts that ports are bound to': ['TestPortsbindingCRUD'] },
  'networking/v2/extensions/quotas': { 'quotas of subnet pools and RBAC policies': ['TestQuotasUpdate'] },
}

/** Folders of packages that test services and extensions which Krater does not offer. */
const NOT_OFFERED = [
  ...['baremetal', 'blockstorage', 'clustering', 'compute', 'container', 'containerinfra', 'db', 'dns'],
  ...['identity/v2', 'imageservice', 'messaging', 'objectstorage', 'orchestration', 'placement'],
  ...['sharedfilesystems', 'workflow'],
  ...['agents', 'dns', 'fwaas', 'fwaas_v2', 'lbaas', 'lbaas_v2', 'qos', 'rbacpolicies', 'subnetpools'].map(
    extension => `networking/v2/extensions/${extension}`,
  ),
  ...['trunks', 'vlantransparent', 'vpnaas'].map(extension => `networking/v2/extensions/${extension}`),
]
/** Its three tests look for object storage, compute and EC2 keys. */
const OF_ALL_SERVICES = '.'

t.test('gophercloud’s own acceptance tests', async t => {
  t.setTimeout(1_100_000)
  const unknown = packagesWithTests().filter(
    name =>
      !(name in PACKAGES) &&
      name !== OF_ALL_SERVICES &&
      !NOT_OFFERED.some(folder => `${name}/`.startsWith(`${folder}/`)),
  )
  t.strictSame(unknown, [], 'every package is run, or tests what Krater does not offer')

  const { directory, go, run } = await prepareGo(t)
  const overlay = correct(directory)
  for (const [name, notOffered] of Object.entries(PACKAGES)) {
    const binary = join(directory, name.replaceAll('/', '-'))
    const options = ['-vet=off', '-overlay', overlay, '-tags', 'acceptance', '-o', binary]
    await go('test', '-c', ...options, `${ACCEPTANCE}/${name}`)
    const list: string[] = (await run(binary, ['-test.list', '.'])).stdout.match(/^Test\w+$/gm) ?? []
    t.not(list.length, 0, `${name} has tests`)
    const { stdout } = await run(binary, ['-test.v'], join(SOURCES, name))
    const failing = Object.values(notOffered).flat()
    for (const test of list.filter(test => !failing.includes(test))) {
      t.equal(outcomeOf(test, stdout), 'PASS', `${name}: ${test}`)
    }
    for (const [reason, tests] of Object.entries(notOffered)) {
      for (const test of tests) {
        t.match(stdout, new RegExp(`^--- (FAIL|SKIP): ${test} `, 'm'), `${name}: ${test} needs ${reason}`)
      }
    }
  }
})

/** The folders with tests, below the acceptance tests. */
function packagesWithTests(): string[] {
  const files = readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })
  return [...new Set(files.filter(file => file.endsWith('_test.go')).map(file => dirname(file)))]
}

/** PASS, or what the test said before it failed. */
function outcomeOf(test: string, output: string): string {
  if (output.includes(`--- PASS: ${test} `)) return 'PASS'
  const [, said = 'did not run'] = new RegExp(`^=== RUN +${test}$([^]*?)^(?:=== RUN|FAIL|PASS)`, 'm').exec(output) ?? []
  return said.slice(-2_000)
}

/** Writes the corrected sources, and the file that tells the compiler of them. */
function correct(directory: string): string {
  const replace = Object.entries(CORRECTED).map(([name, corrections], index) => {
    const original = join(SOURCES, name)
    const corrected = corrections.reduce(
      (source, correction) => {
        const better = correction(source)
        if (better === source) throw new Error(`${name} does not need all of its corrections any more`)
        return better
      },
      readFileSync(original, 'utf8'),
    )
    const copy = join(directory, `corrected-${index}.go`)
    writeFileSync(copy, corrected)
    return [original, copy]
  })
  const file = join(directory, 'overlay.json')
  writeFileSync(file, JSON.stringify({ Replace: Object.fromEntries(replace) }))
  return file
}
