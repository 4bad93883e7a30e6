import type { Test } from 'tap'
import { storeCertificates } from '../../support/inputs/stored-certificates.js'
import { namesOf, type Scene, TIME, UUID } from './scene.js'

const create = 'loadbalancer listener create'

/** loadbalancer listener create, show, list, set, unset, stats show, delete. */
export async function listeners(t: Test, { krater, member, admin }: Scene): Promise<void> {
  const client = await krater.api()
  const first = await storeCertificates(client)
  const second = await storeCertificates(client)
  await member.done('loadbalancer create --name hall --provider noop_driver --vip-subnet-id front --wait')
  await member.done('loadbalancer create --name annex --provider noop_driver --vip-subnet-id front --wait')
  const pool = await member.show(
    'loadbalancer pool create --name store --protocol HTTP --lb-algorithm ROUND_ROBIN --loadbalancer hall --wait',
  )

  await t.test('create with defaults', async t => {
    t.match(await member.show(`${create} --name plain --protocol HTTP --protocol-port 80 --wait hall`), {
      id: UUID,
      name: 'plain',
      description: '',
      admin_state_up: true,
      allowed_cidrs: null,
      alpn_protocols: null,
      client_authentication: 'NONE',
      client_ca_tls_container_ref: null,
      client_crl_container_ref: null,
      connection_limit: -1,
      created_at: TIME,
      default_pool_id: null,
      default_tls_container_ref: null,
      insert_headers: null,
      l7policies: '',
      loadbalancers: UUID,
      operating_status: 'OFFLINE',
      protocol: 'HTTP',
      protocol_port: 80,
      provisioning_status: 'ACTIVE',
      sni_container_refs: [],
      tags: '',
      timeout_client_data: 50000,
      timeout_member_connect: 5000,
      timeout_member_data: 50000,
      timeout_tcp_inspect: 0,
      tls_ciphers: null,
      tls_versions: null,
      updated_at: TIME,
    })
  })

  await t.test('create with every option of an HTTP listener', async t => {
    t.match(
      await member.show(
        `${create} --name full --description 'the works' --protocol HTTP --protocol-port 8080 --connection-limit 1000 --default-pool store --insert-headers X-Forwarded-For=true,X-Forwarded-Port=true --timeout-client-data 1 --timeout-member-connect 2 --timeout-member-data 3 --timeout-tcp-inspect 4 --allowed-cidr 192.0.2.0/24 --allowed-cidr 198.51.100.7/32 --disable --tag blue --tag quiet --wait hall`,
      ),
      {
        description: 'the works',
        connection_limit: 1000,
        default_pool_id: pool.id,
        insert_headers: /X-Forwarded-For=true\nX-Forwarded-Port=true/,
        timeout_client_data: 1,
        timeout_member_connect: 2,
        timeout_member_data: 3,
        timeout_tcp_inspect: 4,
        allowed_cidrs: '192.0.2.0/24\n198.51.100.7/32',
        admin_state_up: false,
        tags: /^(blue\nquiet|quiet\nblue)$/,
      },
    )
  })

  await t.test('create with every option of a TLS listener', async t => {
    t.match(
      await member.show(
        `${create} --name tls --protocol TERMINATED_HTTPS --protocol-port 443 --default-tls-container-ref ${first.container} --sni-container-refs ${first.bundle} ${second.container} --client-ca-tls-container-ref ${first.authority} --client-authentication MANDATORY --client-crl-container-ref ${first.revocationList} --tls-ciphers ECDHE-RSA-AES128-GCM-SHA256 --tls-version TLSv1.2 --tls-version TLSv1.3 --alpn-protocol h2 --alpn-protocol http/1.1 --enable --no-tag --wait hall`,
      ),
      {
        protocol: 'TERMINATED_HTTPS',
        default_tls_container_ref: first.container,
        sni_container_refs: [first.bundle, second.container],
        client_ca_tls_container_ref: first.authority,
        client_authentication: 'MANDATORY',
        client_crl_container_ref: first.revocationList,
        tls_ciphers: 'ECDHE-RSA-AES128-GCM-SHA256',
        tls_versions: ['TLSv1.2', 'TLSv1.3'],
        alpn_protocols: ['h2', 'http/1.1'],
      },
    )
    for (const [port, authentication] of [
      [444, 'NONE'],
      [445, 'OPTIONAL'],
    ]) {
      t.match(
        await member.show(
          `${create} --name tls${port} --protocol TERMINATED_HTTPS --protocol-port ${port} --default-tls-container-ref ${first.container} --client-ca-tls-container-ref ${first.authority} --client-authentication ${authentication} --wait hall`,
        ),
        {
          client_authentication: authentication,
          tls_versions: ['TLSv1.2', 'TLSv1.3'],
          tls_ciphers: /TLS_AES_128_GCM_SHA256/,
          alpn_protocols: ['h2', 'http/1.1', 'http/1.0'],
        },
        'the TLS options have their defaults',
      )
    }
  })

  await t.test('create with each protocol', async t => {
    for (const protocol of ['TCP', 'HTTPS', 'UDP', 'SCTP', 'PROMETHEUS']) {
      t.match(
        await member.show(`${create} --name ${protocol} --protocol ${protocol} --protocol-port 9000 --wait annex`),
        { protocol, protocol_port: 9000, provisioning_status: 'ACTIVE' },
        protocol,
      )
      await member.done(`loadbalancer listener delete --wait ${protocol}`)
    }
    await member.done(`${create} --name udp --protocol UDP --protocol-port 80 annex`)
  })

  await t.test('list with each filter', async t => {
    const listed = async (options: string) => namesOf(await member.list(`loadbalancer listener list ${options}`))
    const all = ['full', 'plain', 'tls', 'tls444', 'tls445', 'udp']
    t.match(
      (await member.list('loadbalancer listener list')).find(({ name }) => name === 'full'),
      {
        id: UUID,
        default_pool_id: pool.id,
        project_id: /./,
        protocol: 'HTTP',
        protocol_port: 8080,
        admin_state_up: false,
      },
    )
    t.same(await listed('--name full'), ['full'])
    t.same(await listed('--loadbalancer annex'), ['udp'])
    t.same(await listed('--enable'), ['plain', 'tls', 'tls444', 'tls445', 'udp'])
    t.same(await listed('--disable'), ['full'])
    t.same(namesOf(await admin.list('loadbalancer listener list --project demo')), all)
    t.same(await admin.list('loadbalancer listener list --project admin'), [])
    t.same(await listed('--tags blue,quiet'), ['full'])
    t.same(await listed('--any-tags blue,loud'), ['full'])
    t.same(await listed('--not-tags blue,loud'), all)
    t.same(await listed('--not-any-tags blue,loud'), ['plain', 'tls', 'tls444', 'tls445', 'udp'])
  })

  await t.test('set, unset and show', async t => {
    await member.done(
      `loadbalancer listener set --name whole --description new --connection-limit 5 --default-pool store --insert-headers X-Forwarded-Proto=true --timeout-client-data 10 --timeout-member-connect 20 --timeout-member-data 30 --timeout-tcp-inspect 40 --allowed-cidr 192.0.2.128/25 --enable --tag red --wait full`,
    )
    t.match(await member.show('loadbalancer listener show whole'), {
      name: 'whole',
      description: 'new',
      connection_limit: 5,
      default_pool_id: pool.id,
      insert_headers: 'X-Forwarded-Proto=true',
      timeout_client_data: 10,
      timeout_member_connect: 20,
      timeout_member_data: 30,
      timeout_tcp_inspect: 40,
      allowed_cidrs: '192.0.2.128/25',
      admin_state_up: true,
      tags: /red/,
      updated_at: TIME,
    })
    await member.done(
      'loadbalancer listener unset --description --connection-limit --default-pool --insert-headers --timeout-client-data --timeout-member-connect --timeout-member-data --timeout-tcp-inspect --allowed-cidrs --tag red --wait whole',
    )
    const { id, ...after } = await member.show('loadbalancer listener show whole')
    t.match(after, {
      description: '',
      connection_limit: -1,
      default_pool_id: null,
      insert_headers: null,
      timeout_client_data: 50000,
      timeout_member_connect: 5000,
      timeout_member_data: 50000,
      timeout_tcp_inspect: 0,
      allowed_cidrs: null,
      tags: /^(blue\nquiet|quiet\nblue)$/,
    })
    await member.done('loadbalancer listener set --disable --tag one --no-tag --wait whole')
    t.match(await member.show(`loadbalancer listener show ${id}`), { admin_state_up: false, tags: 'one' })
    await member.done('loadbalancer listener unset --name --all-tag --wait whole')
    t.match(await member.show(`loadbalancer listener show ${id}`), { name: '', tags: '' })
    await member.done(`loadbalancer listener set --name full --wait ${id}`)
  })

  await t.test('set and unset of TLS options', async t => {
    for (const authentication of ['NONE', 'OPTIONAL', 'MANDATORY']) {
      await member.done(`loadbalancer listener set --client-authentication ${authentication} --wait tls`)
      t.match(await member.show('loadbalancer listener show tls'), { client_authentication: authentication })
    }
    await member.done(
      `loadbalancer listener set --default-tls-container-ref ${second.container} --sni-container-refs ${second.bundle} --client-ca-tls-container-ref ${second.authority} --client-crl-container-ref ${second.revocationList} --tls-ciphers ECDHE-RSA-AES256-GCM-SHA384 --tls-version TLSv1.3 --alpn-protocol http/1.1 --wait tls`,
    )
    t.match(await member.show('loadbalancer listener show tls'), {
      default_tls_container_ref: second.container,
      sni_container_refs: [second.bundle],
      client_ca_tls_container_ref: second.authority,
      client_crl_container_ref: second.revocationList,
      tls_ciphers: 'ECDHE-RSA-AES256-GCM-SHA384',
      tls_versions: ['TLSv1.3'],
      alpn_protocols: ['http/1.1'],
    })
    await member.done(
      'loadbalancer listener unset --sni-container-refs --client-authentication --client-crl-container-ref --client-ca-tls-container-ref --tls-versions --tls-ciphers --alpn-protocols --wait tls',
    )
    t.match(await member.show('loadbalancer listener show tls'), {
      sni_container_refs: [],
      client_authentication: 'NONE',
      client_ca_tls_container_ref: null,
      client_crl_container_ref: null,
      tls_ciphers: /TLS_AES_128_GCM_SHA256/,
      tls_versions: ['TLSv1.2', 'TLSv1.3'],
      alpn_protocols: ['h2', 'http/1.1', 'http/1.0'],
    })
    await member.done(`loadbalancer listener set --sni-container-refs ${second.bundle} --wait tls`)
    await member.done('loadbalancer listener unset --default-tls-container-ref --wait tls')
    t.match(await member.show('loadbalancer listener show tls'), {
      default_tls_container_ref: null,
      sni_container_refs: [second.bundle],
    })
  })

  await t.test('stats show', async t => {
    t.same(await member.show('loadbalancer listener stats show plain'), {
      active_connections: 0,
      bytes_in: 0,
      bytes_out: 0,
      request_errors: 0,
      total_connections: 0,
    })
  })

  await t.test('refused requests and their messages', async t => {
    const udp = '--protocol UDP --protocol-port 7'
    const refusals: [string, number, RegExp][] = [
      [`${create} --protocol HTTP --protocol-port 80 hall`, 1, /80.*\(HTTP 409\)/],
      [`${create} --protocol TCP --protocol-port 80 hall`, 1, /80.*\(HTTP 409\)/],
      [`${create} --protocol HTTP --protocol-port 70000 hall`, 1, /Value must be between 1 and 65535/],
      [`${create} --protocol GOPHER --protocol-port 70 hall`, 2, /invalid choice: 'GOPHER'/],
      [`${create} --protocol HTTP hall`, 2, /required: --protocol-port/],
      [`${create} --protocol HTTP --protocol-port 81 nowhere`, 1, /Unable to locate nowhere in loadbalancers/],
      [`${create} --protocol HTTP --protocol-port 81 --default-pool none hall`, 1, /Unable to locate none in pools/],
      [`${create} --protocol HTTP --protocol-port 81 --default-pool store annex`, 1, /HTTP 404/],
      [`${create} ${udp} --default-pool store hall`, 1, /HTTP 400/],
      [`${create} ${udp} --insert-headers X-Forwarded-For=true hall`, 1, /HTTP 400/],
      [`${create} ${udp} --default-tls-container-ref ${first.container} hall`, 1, /HTTP 400/],
      [`${create} --protocol HTTP --protocol-port 81 --connection-limit -2 hall`, 1, /connection_limit.*HTTP 400/],
      [`${create} --protocol HTTP --protocol-port 81 --connection-limit many hall`, 2, /invalid int value: 'many'/],
      [
        `${create} --protocol HTTP --protocol-port 81 --timeout-client-data -1 hall`,
        1,
        /timeout_client_data.*HTTP 400/,
      ],
      [`${create} --protocol HTTP --protocol-port 81 --allowed-cidr here hall`, 1, /allowed_cidrs.*HTTP 400/],
      [`${create} --protocol HTTP --protocol-port 81 --allowed-cidr 2001:db8::/32 hall`, 1, /HTTP 400/],
      [`${create} --protocol HTTP --protocol-port 81 --insert-headers X-Nothing=true hall`, 1, /X-Nothing.*HTTP 400/],
      [`${create} --protocol TERMINATED_HTTPS --protocol-port 446 hall`, 1, /HTTP 400/],
      ['loadbalancer listener set --client-authentication MANDATORY tls', 1, /HTTP 400/],
      ['loadbalancer listener set --tls-version SSLv9 tls', 1, /SSLv9.*HTTP 400/],
      ['loadbalancer listener set --alpn-protocol h9 tls', 1, /h9.*HTTP 400/],
      ['loadbalancer listener set --name x nowhere', 1, /Unable to locate nowhere in listeners/],
      ['loadbalancer listener unset --name nowhere', 1, /Unable to locate nowhere in listeners/],
      ['loadbalancer listener show nowhere', 1, /Unable to locate nowhere in listeners/],
      ['loadbalancer listener stats show nowhere', 1, /Unable to locate nowhere in listeners/],
      ['loadbalancer listener delete nowhere', 1, /Unable to locate nowhere in listeners/],
      ['loadbalancer listener list --loadbalancer nowhere', 1, /Unable to locate nowhere in loadbalancers/],
    ]
    for (const [line, status, stderr] of refusals) t.match(await member.refused(line), { status, stderr }, line)
  })

  await t.test('delete', async t => {
    await member.done('loadbalancer listener delete --wait tls')
    await member.done('loadbalancer listener delete full')
    t.match(await member.refused('loadbalancer listener show tls'), { status: 1, stderr: /Unable to locate tls/ })
    await member.done('loadbalancer delete --cascade --wait annex')
    t.match(await member.list('loadbalancer list'), [{ name: 'hall' }])
  })
  await member.done('loadbalancer delete --cascade --wait hall')
}
