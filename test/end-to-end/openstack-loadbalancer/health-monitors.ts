import type { Test } from 'tap'
import { namesOf, type Scene, TIME, UUID } from './scene.js'

const create = 'loadbalancer healthmonitor create'
const METHODS = ['GET', 'POST', 'DELETE', 'PUT', 'HEAD', 'OPTIONS', 'PATCH', 'CONNECT', 'TRACE']
const paces = '--delay 5 --timeout 4 --max-retries 3'

/** loadbalancer healthmonitor create, show, list, set, unset, delete. */
export async function healthMonitors(t: Test, { member }: Scene): Promise<void> {
  await member.done('loadbalancer create --name clinic --provider noop_driver --vip-subnet-id s --wait')
  const makePool = (name: string, protocol: string) =>
    member.show(
      `loadbalancer pool create --name ${name} --protocol ${protocol} --lb-algorithm ROUND_ROBIN --loadbalancer clinic --wait`,
    )
  const ward = await makePool('ward', 'HTTP')
  await makePool('lab', 'HTTP')
  await makePool('datagrams', 'UDP')

  await t.test('create', async t => {
    t.match(await member.show(`${create} --name plain --type HTTP ${paces} --wait ward`), {
      id: UUID,
      name: 'plain',
      admin_state_up: true,
      created_at: TIME,
      delay: 5,
      domain_name: null,
      expected_codes: '200',
      http_method: 'GET',
      http_version: null,
      max_retries: 3,
      max_retries_down: 3,
      operating_status: 'ONLINE',
      pools: ward.id,
      provisioning_status: 'ACTIVE',
      tags: '',
      timeout: 4,
      type: 'HTTP',
      updated_at: TIME,
      url_path: '/',
    })
    t.match(await member.show('loadbalancer pool show ward'), {
      healthmonitor_id: (await member.show('loadbalancer healthmonitor show plain')).id,
    })
    t.match(
      await member.show(
        `${create} --name full --type HTTPS --delay 10 --timeout 9 --max-retries 9 --max-retries-down 2 --http-method HEAD --http-version 1.1 --domain-name www.example.org --url-path /healthy --expected-codes 200-299 --disable --tag blue --tag quiet --wait lab`,
      ),
      {
        type: 'HTTPS',
        delay: 10,
        timeout: 9,
        max_retries: 9,
        max_retries_down: 2,
        http_method: 'HEAD',
        http_version: 1.1,
        domain_name: 'www.example.org',
        url_path: '/healthy',
        expected_codes: '200-299',
        admin_state_up: false,
        tags: /^(blue\nquiet|quiet\nblue)$/,
      },
    )
  })

  await t.test('create with each type, method and version', async t => {
    await makePool('trial', 'TCP')
    const cases: [string, string, string, object][] = [
      ...['PING', 'TCP', 'TLS-HELLO', 'HTTPS'].map((type): [string, string, string, object] => [
        'trial',
        type,
        '',
        { url_path: type === 'HTTPS' ? '/' : null },
      ]),
      ...['UDP-CONNECT', 'SCTP'].map((type): [string, string, string, object] => ['datagrams', type, '', {}]),
      ...METHODS.map((method): [string, string, string, object] => [
        'trial',
        'HTTP',
        `--http-method ${method}`,
        { http_method: method },
      ]),
      ['trial', 'HTTP', '--http-version 1.0 --enable --no-tag', { http_version: 1 }],
    ]
    for (const [pool, type, options, expected] of cases) {
      const { id, ...shown } = await member.show(`${create} --type ${type} ${options} ${paces} --wait ${pool}`)
      t.match(shown, { type, provisioning_status: 'ACTIVE', ...expected }, `${type} ${options}`)
      await member.done(`loadbalancer healthmonitor delete --wait ${id}`)
    }
    t.match(await member.show(`${create} --name third --type PING ${paces} trial`), {
      provisioning_status: 'PENDING_CREATE',
      operating_status: 'OFFLINE',
    })
  })

  await t.test('list with each filter', async t => {
    const listed = async (options: string) => namesOf(await member.list(`loadbalancer healthmonitor list ${options}`))
    t.match(await member.list('loadbalancer healthmonitor list --tags blue,quiet'), [
      { id: UUID, name: 'full', project_id: /./, type: 'HTTPS', admin_state_up: false },
    ])
    t.same(await listed(''), ['full', 'plain', 'third'])
    t.same(await listed('--tags loud'), [])
    t.same(await listed('--any-tags loud,blue'), ['full'])
    t.same(await listed('--not-tags blue,quiet'), ['plain', 'third'])
    t.same(await listed('--not-any-tags blue,loud'), ['plain', 'third'])
  })

  await t.test('set, unset and show', async t => {
    for (const method of METHODS) {
      await member.done(`loadbalancer healthmonitor set --http-method ${method} --wait plain`)
      t.match(await member.show('loadbalancer healthmonitor show plain'), { http_method: method })
    }
    for (const version of ['1.0', '1.1']) {
      await member.done(`loadbalancer healthmonitor set --http-version ${version} --wait plain`)
      t.match(await member.show('loadbalancer healthmonitor show plain'), { http_version: Number(version) })
    }
    await member.done(
      'loadbalancer healthmonitor set --name whole --delay 20 --timeout 19 --max-retries 1 --max-retries-down 9 --domain-name example.net --expected-codes 200,204 --url-path /new --enable --tag red --wait full',
    )
    const { id, ...set } = await member.show('loadbalancer healthmonitor show whole')
    t.match(set, {
      name: 'whole',
      delay: 20,
      timeout: 19,
      max_retries: 1,
      max_retries_down: 9,
      domain_name: 'example.net',
      expected_codes: '200,204',
      url_path: '/new',
      admin_state_up: true,
      tags: /red/,
      updated_at: TIME,
    })
    await member.done(
      'loadbalancer healthmonitor unset --domain-name --expected-codes --http-method --http-version --max-retries-down --url-path --tag red --wait whole',
    )
    // Then max_retries also sets the number of failures.
    t.match(await member.show(`loadbalancer healthmonitor show ${id}`), {
      domain_name: null,
      expected_codes: '200',
      http_method: 'GET',
      http_version: null,
      max_retries_down: 1,
      url_path: '/',
      tags: /^(blue\nquiet|quiet\nblue)$/,
    })
    await member.done('loadbalancer healthmonitor set --disable --no-tag --tag one --wait whole')
    t.match(await member.show(`loadbalancer healthmonitor show ${id}`), { admin_state_up: false, tags: 'one' })
    await member.done('loadbalancer healthmonitor unset --name --all-tag --wait whole')
    t.match(await member.show(`loadbalancer healthmonitor show ${id}`), { name: '', tags: '' })
    await member.done(`loadbalancer healthmonitor set --name full --wait ${id}`)
  })

  await t.test('refused requests and their messages', async t => {
    await makePool('spare', 'HTTP')
    const refusals: [string, number, RegExp][] = [
      [`${create} --type HTTP ${paces} ward`, 1, /HTTP 409/],
      [`${create} --type HTTP ${paces} nowhere`, 1, /Unable to locate nowhere in pools/],
      [`${create} --type HTTP --delay 5 --timeout 4 spare`, 2, /required: --max-retries/],
      [`${create} --type HTTP --delay 5 --timeout 4 --max-retries 10 spare`, 2, /invalid choice: 10/],
      [`${create} --type GUESS ${paces} spare`, 2, /invalid choice: 'GUESS'/],
      [`${create} --type HTTP --delay soon --timeout 4 --max-retries 3 spare`, 1, /invalid literal for int/],
      [`${create} --type HTTP --delay -1 --timeout 4 --max-retries 3 spare`, 1, /delay.*HTTP 400/],
      [`${create} --type TCP --url-path / ${paces} spare`, 1, /HTTP 400/],
      [`${create} --type HTTP --url-path here ${paces} spare`, 1, /url_path.*HTTP 400/],
      [`${create} --type HTTP --expected-codes 99 ${paces} spare`, 1, /expected_codes.*HTTP 400/],
      [`${create} --type HTTP --domain-name a.example ${paces} spare`, 1, /HTTP 400/],
      [`${create} --type HTTP --domain-name a.example --http-version 1.0 ${paces} spare`, 1, /HTTP 400/],
      [`${create} --type UDP-CONNECT ${paces} spare`, 1, /HTTP 400/],
      [`${create} --type HTTPS ${paces} datagrams`, 1, /HTTP 400/],
      [`${create} --type UDP-CONNECT --delay 1 --timeout 1 --max-retries 3 datagrams`, 1, /HTTP 400/],
      ['loadbalancer healthmonitor set --name x nowhere', 1, /Unable to locate nowhere in healthmonitors/],
      ['loadbalancer healthmonitor unset --name nowhere', 1, /Unable to locate nowhere in healthmonitors/],
      ['loadbalancer healthmonitor show nowhere', 1, /Unable to locate nowhere in healthmonitors/],
      ['loadbalancer healthmonitor delete nowhere', 1, /Unable to locate nowhere in healthmonitors/],
    ]
    for (const [line, status, stderr] of refusals) t.match(await member.refused(line), { status, stderr }, line)
  })

  await t.test('delete', async t => {
    await member.done('loadbalancer healthmonitor delete --wait plain')
    t.match(await member.show('loadbalancer pool show ward'), { healthmonitor_id: '' })
    await member.done('loadbalancer healthmonitor delete full')
    t.match(await member.refused('loadbalancer healthmonitor show plain'), {
      status: 1,
      stderr: /Unable to locate plain/,
    })
  })
  await member.done('loadbalancer delete --cascade --wait clinic')
}
