import type { Test } from 'tap'
import { namesOf, type Scene, TIME, UUID } from './scene.js'

const policy = 'loadbalancer l7policy'
const rule = 'loadbalancer l7rule'

/** loadbalancer l7policy and l7rule create, show, list, set, unset, delete. */
export async function l7(t: Test, { member }: Scene): Promise<void> {
  await member.done('loadbalancer create --name station --provider noop_driver --vip-subnet-id s --wait')
  const makeListener = (name: string, port: number) =>
    member.show(`loadbalancer listener create --name ${name} --protocol HTTP --protocol-port ${port} --wait station`)
  const makePool = (name: string, protocol: string) =>
    member.show(
      `loadbalancer pool create --name ${name} --protocol ${protocol} --lb-algorithm ROUND_ROBIN --loadbalancer station --wait`,
    )
  const gate = await makeListener('gate', 80)
  await makeListener('side', 81)
  const siding = await makePool('siding', 'HTTP')
  await makePool('canal', 'UDP')

  await t.test('l7policy create, with each action', async t => {
    t.match(await member.show(`${policy} create --name plain --action REJECT --wait gate`), {
      id: UUID,
      name: 'plain',
      description: '',
      action: 'REJECT',
      admin_state_up: true,
      created_at: TIME,
      listener_id: gate.id,
      operating_status: 'ONLINE',
      position: 1,
      provisioning_status: 'ACTIVE',
      redirect_http_code: null,
      redirect_pool_id: null,
      redirect_prefix: null,
      redirect_url: null,
      rules: '',
      tags: '',
      updated_at: TIME,
    })
    t.match(
      await member.show(
        `${policy} create --name full --description 'the works' --action REDIRECT_TO_URL --redirect-url https://example.org/new --redirect-http-code 301 --position 1 --disable --tag blue --tag quiet --wait gate`,
      ),
      {
        description: 'the works',
        redirect_url: 'https://example.org/new',
        redirect_http_code: 301,
        position: 1,
        admin_state_up: false,
        operating_status: 'OFFLINE',
        tags: /^(blue\nquiet|quiet\nblue)$/,
      },
    )
    t.match(await member.show(`${policy} show plain`), { position: 2 }, 'the policy at that position moves down')
    t.match(
      await member.show(
        `${policy} create --name pooled --action REDIRECT_TO_POOL --redirect-pool siding --enable --no-tag --wait gate`,
      ),
      { redirect_pool_id: siding.id, redirect_http_code: null, position: 3 },
    )
    for (const code of [301, 302, 303, 307, 308]) {
      t.match(
        await member.show(
          `${policy} create --name prefix${code} --action REDIRECT_PREFIX --redirect-prefix https://example.org --redirect-http-code ${code} side --wait`,
        ),
        { redirect_prefix: 'https://example.org', redirect_http_code: code },
      )
    }
    t.match(
      await member.show(`${policy} create --name late --action REDIRECT_TO_URL --redirect-url http://a.example/ side`),
      { redirect_http_code: 302, position: 6, provisioning_status: 'PENDING_CREATE' },
    )
  })

  await t.test('l7policy list with each filter', async t => {
    const listed = async (options: string) => namesOf(await member.list(`${policy} list ${options}`))
    t.match(await member.list(`${policy} list --tags blue,quiet`), [
      {
        id: UUID,
        name: 'full',
        project_id: /./,
        provisioning_status: 'ACTIVE',
        action: 'REDIRECT_TO_URL',
        position: 1,
        admin_state_up: false,
      },
    ])
    t.same(await listed('--listener gate'), ['full', 'plain', 'pooled'])
    t.same((await listed('')).length, 9)
    t.same(await listed('--tags loud'), [])
    t.same(await listed('--any-tags loud,blue'), ['full'])
    t.same(await listed('--listener gate --not-tags blue,quiet'), ['plain', 'pooled'])
    t.same(await listed('--listener gate --not-any-tags blue,loud'), ['plain', 'pooled'])
  })

  await t.test('l7policy set, unset and show', async t => {
    await member.done(
      `${policy} set --name whole --description new --action REDIRECT_TO_POOL --redirect-pool siding --position 3 --enable --tag red --wait full`,
    )
    const { id, ...set } = await member.show(`${policy} show whole`)
    t.match(set, {
      description: 'new',
      action: 'REDIRECT_TO_POOL',
      redirect_pool_id: siding.id,
      redirect_url: null,
      redirect_http_code: null,
      position: 3,
      admin_state_up: true,
      tags: /red/,
      updated_at: TIME,
    })
    for (const code of [301, 302, 303, 307, 308]) {
      await member.done(
        `${policy} set --action REDIRECT_TO_URL --redirect-url https://example.org/${code} --redirect-http-code ${code} --wait whole`,
      )
      t.match(await member.show(`${policy} show whole`), {
        redirect_pool_id: null,
        redirect_url: `https://example.org/${code}`,
        redirect_http_code: code,
      })
    }
    await member.done(
      `${policy} set --action REDIRECT_PREFIX --redirect-prefix https://example.net --disable --no-tag --tag one --wait ${id}`,
    )
    t.match(await member.show(`${policy} show ${id}`), {
      action: 'REDIRECT_PREFIX',
      redirect_prefix: 'https://example.net',
      redirect_url: null,
      admin_state_up: false,
      tags: 'one',
    })
    await member.done(`${policy} unset --description --redirect-http-code --tag one --wait whole`)
    t.match(await member.show(`${policy} show ${id}`), { description: '', redirect_http_code: 302, tags: '' })
    await member.done(`${policy} set --action REJECT --tag two --wait whole`)
    t.match(await member.show(`${policy} show ${id}`), { redirect_prefix: null, redirect_http_code: null })
    await member.done(`${policy} unset --name --all-tag --wait whole`)
    t.match(await member.show(`${policy} show ${id}`), { name: '', tags: '' })
    await member.done(`${policy} set --name full --wait ${id}`)
  })

  await t.test('l7rule create, with each type and comparison', async t => {
    const types: [string, string, string, string?][] = [
      ['PATH', 'STARTS_WITH', '/images'],
      ['HOST_NAME', 'ENDS_WITH', '.example.org'],
      ['FILE_TYPE', 'EQUAL_TO', 'jpg'],
      ['HEADER', 'CONTAINS', 'curl', 'User-Agent'],
      ['COOKIE', 'REGEX', '^[a-z]+$', 'crumb'],
      ['SSL_CONN_HAS_CERT', 'EQUAL_TO', 'true'],
      ['SSL_VERIFY_RESULT', 'EQUAL_TO', '0'],
      ['SSL_DN_FIELD', 'EQUAL_TO', 'Earth', 'O'],
    ]
    for (const [type, comparison, value, key] of types) {
      const options = `--type ${type} --compare-type ${comparison} --value ${value}${key === undefined ? '' : ` --key ${key}`}`
      const shown = await member.show(`${rule} create ${options} plain`)
      t.match(shown, { type, compare_type: comparison, value, key: key ?? null, invert: false, admin_state_up: true })
      await settled(shown.id)
    }
    const shown = await member.show(
      `${rule} create --type PATH --compare-type EQUAL_TO --value /x --invert --disable --tag blue --tag quiet plain`,
    )
    t.match(shown, {
      id: UUID,
      invert: true,
      admin_state_up: false,
      created_at: TIME,
      operating_status: 'OFFLINE',
      provisioning_status: 'PENDING_CREATE',
      tags: /^(blue\nquiet|quiet\nblue)$/,
      updated_at: null,
    })
    await settled(shown.id)
    const other = await member.show(
      `${rule} create --type PATH --compare-type EQUAL_TO --value /y --enable --no-tag pooled`,
    )
    await settled(other.id, 'pooled')
    t.match(await member.show(`${policy} show pooled`), { rules: other.id })
    t.match(
      await member.refused(`${rule} create --type PATH --compare-type EQUAL_TO --value /z --wait full`),
      { status: 1, stderr: /HTTP 404/ },
      'with --wait, the client fetches the new rule with the ids of policy and rule swapped',
    )
    t.match(await member.list(`${rule} list full`), [{ value: '/z' }], 'the rule exists all the same')
  })

  await t.test('l7rule list with each filter', async t => {
    const listed = async (options: string) => (await member.list(`${rule} list ${options} plain`)).length
    t.match(await member.list(`${rule} list --tags blue,quiet plain`), [
      {
        id: UUID,
        project_id: /./,
        provisioning_status: 'ACTIVE',
        type: 'PATH',
        compare_type: 'EQUAL_TO',
        key: null,
        value: '/x',
        invert: true,
        admin_state_up: false,
      },
    ])
    t.equal(await listed(''), 9)
    t.equal(await listed('--tags loud'), 0)
    t.equal(await listed('--any-tags loud,blue'), 1)
    t.equal(await listed('--not-tags blue,quiet'), 8)
    t.equal(await listed('--not-any-tags blue,loud'), 8)
  })

  await t.test('l7rule set, unset and show', async t => {
    const [{ id } = {}] = await member.list(`${rule} list pooled`)
    const changes: [string, object][] = [
      ['--type COOKIE --key crumb --compare-type REGEX --value ^a', { type: 'COOKIE', key: 'crumb', value: '^a' }],
      ['--type HEADER --key X-Kind --compare-type CONTAINS --value b', { type: 'HEADER', key: 'X-Kind' }],
      ['--type SSL_DN_FIELD --key OU --compare-type ENDS_WITH --value c', { type: 'SSL_DN_FIELD', key: 'OU' }],
      ['--type PATH --compare-type STARTS_WITH --value /d', { type: 'PATH', key: null, value: '/d' }],
      ['--type HOST_NAME --compare-type EQUAL_TO --value e.example', { type: 'HOST_NAME', key: null }],
      ['--type FILE_TYPE --compare-type EQUAL_TO --value png', { type: 'FILE_TYPE' }],
      ['--type SSL_CONN_HAS_CERT --compare-type EQUAL_TO --value true', { type: 'SSL_CONN_HAS_CERT' }],
      ['--type SSL_VERIFY_RESULT --compare-type EQUAL_TO --value 1', { type: 'SSL_VERIFY_RESULT' }],
      ['--type PATH --compare-type EQUAL_TO --value /y --invert --disable --tag red --tag green', { invert: true }],
    ]
    for (const [options, expected] of changes) {
      await member.done(`${rule} set ${options} --wait pooled ${id}`)
      t.match(await member.show(`${rule} show pooled ${id}`), { ...expected, provisioning_status: 'ACTIVE' }, options)
    }
    t.match(await member.show(`${rule} show pooled ${id}`), {
      admin_state_up: false,
      tags: /^(red\ngreen|green\nred)$/,
      updated_at: TIME,
    })
    await member.done(`${rule} set --enable --no-tag --tag one --wait pooled ${id}`)
    t.match(await member.show(`${rule} show pooled ${id}`), { admin_state_up: true, tags: 'one' })
    await member.done(`${rule} unset --invert --key --tag one --wait pooled ${id}`)
    t.match(await member.show(`${rule} show pooled ${id}`), { invert: false, key: null, tags: '' })
    await member.done(`${rule} set --tag two --wait pooled ${id}`)
    await member.done(`${rule} unset --all-tag --wait pooled ${id}`)
    t.match(await member.show(`${rule} show pooled ${id}`), { tags: '' })
  })

  await t.test('refused requests and their messages', async t => {
    const [{ id } = {}] = await member.list(`${rule} list pooled`)
    const refusals: [string, number, RegExp][] = [
      [`${policy} create --action REDIRECT_TO_POOL gate`, 1, /Missing argument: --redirect-pool/],
      [`${policy} create --action REDIRECT_TO_URL --redirect-url here gate`, 1, /redirect_url.*HTTP 400/],
      [`${policy} create --action REDIRECT_TO_POOL --redirect-pool canal gate`, 1, /UDP.*HTTP 400/],
      [
        `${policy} create --action REDIRECT_TO_POOL --redirect-pool nowhere gate`,
        1,
        /Unable to locate nowhere in pools/,
      ],
      [`${policy} create --action REJECT --position 0 gate`, 1, /position.*HTTP 400/],
      [`${policy} create --action REJECT nowhere`, 1, /Unable to locate nowhere in listeners/],
      [`${policy} create --action IGNORE gate`, 2, /invalid choice: 'IGNORE'/],
      [
        `${policy} create --action REJECT --redirect-url http://a/ --redirect-prefix http://b gate`,
        2,
        /not allowed with/,
      ],
      [`${policy} create --action REDIRECT_TO_URL --redirect-url http://a/ --redirect-http-code 304 gate`, 2, /304/],
      [`${policy} set --action REDIRECT_TO_URL plain`, 1, /Missing argument: --redirect-url/],
      [`${policy} set --redirect-url here plain`, 1, /redirect_url.*HTTP 400/],
      [`${policy} set --name x nowhere`, 1, /Unable to locate nowhere in l7policies/],
      [`${policy} unset --name nowhere`, 1, /Unable to locate nowhere in l7policies/],
      [`${policy} show nowhere`, 1, /Unable to locate nowhere in l7policies/],
      [`${policy} delete nowhere`, 1, /Unable to locate nowhere in l7policies/],
      [`${rule} create --type HEADER --compare-type EQUAL_TO --value x plain`, 1, /requires --key <key>/],
      [`${rule} create --type PATH --compare-type REGEX --value [ plain`, 1, /HTTP 400/],
      [`${rule} create --type FILE_TYPE --compare-type CONTAINS --value x plain`, 1, /HTTP 400/],
      [`${rule} create --type SSL_VERIFY_RESULT --compare-type EQUAL_TO --value no plain`, 1, /HTTP 400/],
      [`${rule} create --type PATH --compare-type LIKE --value x plain`, 2, /invalid choice: 'LIKE'/],
      [`${rule} create --type PATH --compare-type EQUAL_TO --value /x nowhere`, 1, /Unable to locate nowhere/],
      [`${rule} set --type COOKIE --key 'a b' pooled ${id}`, 1, /HTTP 400/],
      [`${rule} show plain ${id}`, 1, /HTTP 400|Unable to locate/],
      [`${rule} show nowhere ${id}`, 1, /Unable to locate nowhere in l7policies/],
      [`${rule} set --value x plain ${id}`, 1, /HTTP 400|Unable to locate/],
      [`${rule} unset --key plain ${id}`, 1, /HTTP 404/],
      [`${rule} delete plain ${id}`, 1, /HTTP 400|Unable to locate/],
      [`${rule} list nowhere`, 1, /Unable to locate nowhere in l7policies/],
    ]
    for (const [line, status, stderr] of refusals) t.match(await member.refused(line), { status, stderr }, line)
  })

  await t.test('a pool in use by a policy cannot be deleted', async t => {
    t.match(await member.refused('loadbalancer pool delete siding'), { status: 1, stderr: /HTTP 409/ })
  })

  await t.test('delete', async t => {
    const [{ id } = {}] = await member.list(`${rule} list pooled`)
    await member.done(`${rule} delete --wait pooled ${id}`)
    t.same(await member.list(`${rule} list pooled`), [])
    const [{ id: first } = {}] = await member.list(`${rule} list plain`)
    await member.done(`${policy} delete --wait pooled`)
    await member.done(`${rule} delete plain ${first}`)
    t.match(await member.refused(`${policy} show pooled`), { status: 1, stderr: /Unable to locate pooled/ })
    t.equal((await member.list(`${policy} list --listener gate`)).length, 2)
  })
  await member.done('loadbalancer delete --cascade --wait station')

  /** Waits for a new rule, as `--wait` should. */
  async function settled(id: unknown, name = 'plain') {
    for (let look = 0; look < 200; look++) {
      const { provisioning_status: status } = await member.show(`${rule} show ${name} ${id}`)
      if (status === 'ACTIVE') return
    }
    throw new Error(`The rule ${id} does not settle`)
  }
}
