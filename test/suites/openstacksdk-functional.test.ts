import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { clientEnvironment } from '../support/clients/openstack-session.js'
import { type Reasons, runSuite, type Suite, suiteDirectory } from '../support/clients/stestr.js'
import { startKrater } from '../support/worlds/krater.js'

/** One reason for all tests of modules. */
const all = (reason: string, modules: readonly string[]): Reasons =>
  Object.fromEntries(modules.map(module => [`test_${module}`, reason]))

const QOS = 'qos'
const COMPUTE = 'it needs a compute service'
const DISABLED_UPSTREAM = 'temporarily disabled'
const NO_VOLUMES = 'volume service not supported by cloud'
const NO_DNS = 'dns service not supported by cloud'
const NO_CONTAINERS = 'Container service not supported by cloud'

const CLEANUP = 'project_cleanup'

/** By folder. The others test services that Krater does not offer, and none tests the key manager. */
const SUITES: Readonly<Record<string, Omit<Suite, 'tests'>>> = {
  load_balancer: { passing: 58 },
  identity: { passing: 5 },
  network: {
    skipped: {
      ...all('Address Group extension disabled', ['address_group']),
      ...all('fwaas_v2 service not supported', [
        ...['firewall_group', 'firewall_policy', 'firewall_rule', 'firewall_rule_insert_remove_policy'],
      ]),
      ...all(NO_DNS, ['floating_ip']),
      ...all('extension disabled', ['l3_conntrack_helper', 'local_ip', 'local_ip_association', 'ndp_proxy']),
      ...all('extension disabled', ['network_segment_range', 'port_forwarding', 'segment', 'trunk']),
      ...all(QOS, ['qos_bandwidth_limit_rule', 'qos_dscp_marking_rule', 'qos_minimum_bandwidth_rule']),
      ...all(QOS, ['qos_minimum_packet_rate_rule', 'qos_policy', 'qos_rule_type']),
      ...all('vpnaas_v2 service not supported', ['vpnaas']),
    },
    failing: {
      ...all('there are no agents', ['agent', 'agent_add_remove_network', 'agent_add_remove_router']),
      ...all('there are no distributed routers', ['dvr_router']),
      ...all('there is nothing to choose from', ['availability_zone', 'flavor', 'service_profile', 'service_provider']),
      ...all('a subnet gets its range when it is made', ['address_scope', 'subnet_from_subnet_pool', 'subnet_pool']),
      ...all('networks are made one by one', ['auto_allocated_topology']),
      ...all('the list of IP availabilities is empty', ['network_ip_availability']),
      ...all('a network is shared with all projects or with none', ['rbac_policy']),
    },
    passing: 34,
  },
  cloud: {
    together: ['test_groups', 'test_identity', 'test_users'],
    excluded: { [CLEANUP]: 'a project of its own' },
    skipped: {
      ...all('clustering service not supported by cloud', ['clustering']),
      ...all(NO_CONTAINERS, ['cluster_templates', 'magnum_services']),
      ...all('Object service not supported by cloud', ['object']),
      ...all('Orchestration service not supported by cloud', ['stack']),
      ...all(NO_DNS, ['recordset', 'zone']),
      ...all('QoS network extension not supported by cloud', [
        ...['qos_bandwidth_limit_rule', 'qos_dscp_marking_rule', 'qos_minimum_bandwidth_rule', 'qos_policy'],
      ]),
      ...all(DISABLED_UPSTREAM, ['volume', 'volume_backup']),
      ...all(NO_VOLUMES, ['volume_type']),
      TestVolumeQuotas: NO_VOLUMES,
      test_attach_detach_volume: DISABLED_UPSTREAM,
      test_create_boot_attach_volume: DISABLED_UPSTREAM,
      test_create_boot_from_volume_image: DISABLED_UPSTREAM,
      test_create_boot_from_volume_preexisting: DISABLED_UPSTREAM,
      test_create_boot_from_volume_preexisting_terminate: DISABLED_UPSTREAM,
      test_create_terminate_volume_image: DISABLED_UPSTREAM,
    },
    failing: {
      ...all(COMPUTE, ['aggregate', 'compute', 'flavor', 'inventory', 'keypairs', 'limits', 'server_group']),
      ...all(COMPUTE, ['floating_ip', 'floating_ip_pool']),
      TestComputeQuotas: COMPUTE,
      ...all('it searches for flavors of the compute service', ['range_search']),
      ...all('it needs an image service', ['image']),
      test_create_network_provider_flat: 'no physical network has its name',
    },
    passing: 75,
  },
}

t.test('openstacksdk’s own functional tests', async t => {
  t.setTimeout(1_100_000)
  const krater = await startKrater(t, { KRATER_COMPUTE_DRIVER: 'noop' })
  // These tests take the first subnet of all. An administrator of networks would see the amphorae's own too.
  const grant = ['role', 'add', '--user', 'demo', '--project', 'demo', 'load-balancer_admin']
  await krater.openstack(grant, 'krater-admin')
  const environment = {
    OPENSTACKSDK_DEMO_CLOUD: 'krater',
    OPENSTACKSDK_DEMO_CLOUD_ALT: 'krater',
    OPENSTACKSDK_OPERATOR_CLOUD: 'krater-admin',
    OS_TEST_TIMEOUT: '120',
  }

  await t.test('the clean-up of a project', async t => {
    const project = 'tidied'
    await krater.openstack(['project', 'create', project], 'krater-admin')
    await krater.openstack(['role', 'add', '--user', 'demo', '--project', project, 'member'], 'krater-admin')
    const directory = suiteDirectory(t)
    const clouds = join(directory, 'clouds.yaml')
    // It removes whatever the project has, and fails if that includes a router of another test.
    const own = readFileSync(join(krater.directory, 'clouds.yaml'), 'utf8')
    const tidied = own.replaceAll('project_name: demo', `project_name: ${project}`)
    t.not(tidied, own)
    writeFileSync(clouds, tidied)
    const suite = { tests: 'openstack/tests/functional/cloud', select: CLEANUP, passing: 1 }
    await runSuite(t, directory, suite, {
      ...clientEnvironment(krater, 'krater'),
      ...environment,
      OS_CLIENT_CONFIG_FILE: clouds,
    })
    const left = await krater.openstack(['network', 'list', '--project', project, '-f', 'json'], 'krater-admin')
    t.strictSame(left, [])
  })

  for (const [folder, suite] of Object.entries(SUITES)) {
    await t.test(folder, async t => {
      const tests = `openstack/tests/functional/${folder}`
      await runSuite(
        t,
        suiteDirectory(t),
        // The SDK asks for the status of a load balancer every two seconds. Nothing here takes so long.
        { tests, maxSleep: 0.03, ...suite },
        {
          ...clientEnvironment(krater, folder === 'load_balancer' ? 'krater' : 'krater-admin'),
          ...environment,
        },
      )
    })
  }
})
