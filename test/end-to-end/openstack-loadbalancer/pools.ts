import type { Test } from 'tap'
import { storeCertificates } from '../../support/inputs/stored-certificates.js'
import { namesOf, type Scene, TIME, UUID } from './scene.js'

const create = 'loadbalancer pool create'

/** loadbalancer pool create, show, list, set, unset, delete. */
export async function pools(t: Test, { krater, member }: Scene): Promise<void> {
  const client = await krater.api()
  const first = await storeCertificates(client)
  const second = await storeCertificates(client)
  const balancer = await member.show(
    'loadbalancer create --name kitchen --provider noop_driver --vip-subnet-id s --wait',
  )
  await member.done('loadbalancer create --name bar --provider noop_driver --vip-subnet-id s --wait')
  const listener = await member.show(
    'loadbalancer listener create --name serve --protocol HTTP --protocol-port 80 --wait kitchen',
  )

  await t.test('create with defaults', async t => {
    t.match(
      await member.show(`${create} --name plain --protocol HTTP --lb-algorithm ROUND_ROBIN --listener serve --wait`),
      {
        id: UUID,
        name: 'plain',
        description: '',
        admin_state_up: true,
        alpn_protocols: null,
        ca_tls_container_ref: null,
        created_at: TIME,
        crl_container_ref: null,
        healthmonitor_id: '',
        lb_algorithm: 'ROUND_ROBIN',
        listeners: listener.id,
        loadbalancers: balancer.id,
        members: '',
        operating_status: /^(OFFLINE|NO_MONITOR)$/,
        protocol: 'HTTP',
        provisioning_status: 'ACTIVE',
        session_persistence: null,
        tags: '',
        tls_ciphers: null,
        tls_container_ref: null,
        tls_enabled: false,
        tls_versions: null,
        updated_at: TIME,
      },
    )
  })

  await t.test('create with every option', async t => {
    t.match(
      await member.show(
        `${create} --name full --description 'the works' --protocol HTTP --lb-algorithm SOURCE_IP --loadbalancer kitchen --session-persistence type=APP_COOKIE,cookie_name=crumb --tls-container-ref ${first.container} --ca-tls-container-ref ${first.authority} --crl-container-ref ${first.revocationList} --enable-tls --tls-ciphers ECDHE-RSA-AES128-GCM-SHA256 --tls-version TLSv1.2 --tls-version TLSv1.3 --alpn-protocol h2 --alpn-protocol http/1.1 --disable --tag blue --tag quiet --wait`,
      ),
      {
        description: 'the works',
        lb_algorithm: 'SOURCE_IP',
        listeners: '',
        loadbalancers: balancer.id,
        session_persistence: /type=APP_COOKIE\ncookie_name=crumb/,
        tls_container_ref: first.container,
        ca_tls_container_ref: first.authority,
        crl_container_ref: first.revocationList,
        tls_enabled: true,
        tls_ciphers: 'ECDHE-RSA-AES128-GCM-SHA256',
        tls_versions: ['TLSv1.2', 'TLSv1.3'],
        alpn_protocols: ['h2', 'http/1.1'],
        admin_state_up: false,
        tags: /^(blue\nquiet|quiet\nblue)$/,
      },
    )
    t.match(
      await member.show(
        `${create} --name bare --protocol UDP --lb-algorithm SOURCE_IP_PORT --loadbalancer bar --disable-tls --enable --no-tag --session-persistence type=SOURCE_IP,persistence_timeout=60,persistence_granularity=255.255.255.0 --wait`,
      ),
      {
        tls_enabled: false,
        admin_state_up: true,
        session_persistence: /type=SOURCE_IP\n.*persistence_timeout=60\npersistence_granularity=255.255.255.0/s,
      },
    )
  })

  await t.test('create with each protocol and each algorithm', async t => {
    const algorithms = ['LEAST_CONNECTIONS', 'ROUND_ROBIN', 'SOURCE_IP', 'SOURCE_IP_PORT']
    for (const [at, protocol] of ['TCP', 'HTTP', 'HTTPS', 'PROXY', 'PROXYV2', 'UDP', 'SCTP'].entries()) {
      const algorithm = algorithms[at % 4]
      t.match(
        await member.show(
          `${create} --name ${protocol} --protocol ${protocol} --lb-algorithm ${algorithm} --loadbalancer bar --wait`,
        ),
        { protocol, lb_algorithm: algorithm, provisioning_status: 'ACTIVE' },
        protocol,
      )
      await member.done(`loadbalancer pool delete --wait ${protocol}`)
    }
    t.match(
      await member.refused(`${create} --protocol TERMINATED_HTTPS --lb-algorithm ROUND_ROBIN --loadbalancer bar`),
      { status: 1, stderr: /TERMINATED_HTTPS.*HTTP 400/ },
      'the client offers this protocol, but no pool has it',
    )
  })

  await t.test('list with each filter', async t => {
    const listed = async (options: string) => namesOf(await member.list(`loadbalancer pool list ${options}`))
    const [first] = await member.list('loadbalancer pool list --tags blue')
    t.match(first, {
      id: UUID,
      name: 'full',
      project_id: /./,
      provisioning_status: 'ACTIVE',
      protocol: 'HTTP',
      lb_algorithm: 'SOURCE_IP',
      admin_state_up: false,
    })
    t.same(await listed('--loadbalancer kitchen'), ['full', 'plain'])
    t.same(await listed('--loadbalancer bar'), ['bare'])
    t.same(await listed('--tags blue,loud'), [])
    t.same(await listed('--any-tags blue,loud'), ['full'])
    t.same(await listed('--not-tags blue,quiet'), ['bare', 'plain'])
    t.same(await listed('--not-any-tags blue'), ['bare', 'plain'])
  })

  await t.test('set, unset and show', async t => {
    for (const algorithm of ['LEAST_CONNECTIONS', 'ROUND_ROBIN', 'SOURCE_IP_PORT', 'SOURCE_IP']) {
      await member.done(`loadbalancer pool set --lb-algorithm ${algorithm} --wait plain`)
      t.match(await member.show('loadbalancer pool show plain'), { lb_algorithm: algorithm })
    }
    await member.done(
      `loadbalancer pool set --name whole --description new --session-persistence type=HTTP_COOKIE --tls-container-ref ${second.bundle} --ca-tls-container-ref ${second.authority} --crl-container-ref ${second.revocationList} --tls-ciphers ECDHE-RSA-AES256-GCM-SHA384 --tls-version TLSv1.3 --alpn-protocol http/1.1 --enable --enable-tls --tag red --wait full`,
    )
    const { id, ...set } = await member.show('loadbalancer pool show whole')
    t.match(set, {
      name: 'whole',
      description: 'new',
      session_persistence: /type=HTTP_COOKIE/,
      tls_container_ref: second.bundle,
      ca_tls_container_ref: second.authority,
      crl_container_ref: second.revocationList,
      tls_ciphers: 'ECDHE-RSA-AES256-GCM-SHA384',
      tls_versions: ['TLSv1.3'],
      alpn_protocols: ['http/1.1'],
      admin_state_up: true,
      tls_enabled: true,
      tags: /red/,
      updated_at: TIME,
    })
    await member.done(
      'loadbalancer pool unset --description --crl-container-ref --ca-tls-container-ref --tls-container-ref --session-persistence --tls-versions --tls-ciphers --alpn-protocols --tag red --wait whole',
    )
    t.match(await member.show(`loadbalancer pool show ${id}`), {
      description: '',
      session_persistence: null,
      tls_container_ref: null,
      ca_tls_container_ref: null,
      crl_container_ref: null,
      tls_ciphers: /TLS_AES_128_GCM_SHA256/,
      tls_versions: ['TLSv1.2', 'TLSv1.3'],
      alpn_protocols: ['h2', 'http/1.1', 'http/1.0'],
      tags: /^(blue\nquiet|quiet\nblue)$/,
    })
    await member.done(`loadbalancer pool set --disable --disable-tls --no-tag --tag one --wait ${id}`)
    t.match(await member.show(`loadbalancer pool show ${id}`), {
      admin_state_up: false,
      tls_enabled: false,
      tags: 'one',
    })
    await member.done(`loadbalancer pool unset --name --all-tag --wait ${id}`)
    t.match(await member.show(`loadbalancer pool show ${id}`), { name: '', tags: '' })
    await member.done(`loadbalancer pool set --name full --wait ${id}`)
  })

  await t.test('refused requests and their messages', async t => {
    const http = '--protocol HTTP --lb-algorithm ROUND_ROBIN'
    const refusals: [string, number, RegExp][] = [
      [`${create} ${http} --listener serve`, 1, /HTTP 409/],
      [`${create} ${http}`, 2, /one of the arguments --listener --loadbalancer is required/],
      [`${create} ${http} --loadbalancer nowhere`, 1, /Unable to locate nowhere in loadbalancers/],
      [`${create} ${http} --listener nowhere`, 1, /Unable to locate nowhere in listeners/],
      [`${create} --protocol HTTP --loadbalancer bar`, 2, /required: --lb-algorithm/],
      [`${create} --protocol HTTP --lb-algorithm RANDOM --loadbalancer bar`, 2, /invalid choice: 'RANDOM'/],
      [`${create} ${http} --loadbalancer bar --session-persistence type=CHARM`, 1, /CHARM.*HTTP 400/],
      [`${create} ${http} --loadbalancer bar --session-persistence type=APP_COOKIE`, 1, /HTTP 400/],
      [
        `${create} ${http} --loadbalancer bar --session-persistence type=SOURCE_IP,persistence_timeout=5`,
        1,
        /HTTP 400/,
      ],
      [`${create} ${http} --loadbalancer bar --session-persistence nonsense`, 1, /not enough values to unpack/],
      [`${create} ${http} --loadbalancer bar --crl-container-ref ${first.container}`, 1, /HTTP 400/],
      [`${create} ${http} --loadbalancer bar --tls-version SSLv9 --enable-tls`, 1, /SSLv9.*HTTP 400/],
      ['loadbalancer pool set --session-persistence type=APP_COOKIE,cookie_name=a;b full', 1, /HTTP 400/],
      ['loadbalancer pool set --name x nowhere', 1, /Unable to locate nowhere in pools/],
      ['loadbalancer pool unset --name nowhere', 1, /Unable to locate nowhere in pools/],
      ['loadbalancer pool show nowhere', 1, /Unable to locate nowhere in pools/],
      ['loadbalancer pool delete nowhere', 1, /Unable to locate nowhere in pools/],
    ]
    for (const [line, status, stderr] of refusals) t.match(await member.refused(line), { status, stderr }, line)
  })

  await t.test('delete', async t => {
    await member.done('loadbalancer pool delete --wait plain')
    t.match(await member.show('loadbalancer listener show serve'), { default_pool_id: null })
    await member.done('loadbalancer pool delete full')
    t.match(await member.refused('loadbalancer pool show plain'), { status: 1, stderr: /Unable to locate plain/ })
  })
  for (const name of ['kitchen', 'bar']) await member.done(`loadbalancer delete --cascade --wait ${name}`)
}
