import type { Test } from 'tap'
import { hrefOf, MISSING, madeBy, namesOf, type Scene, TIME } from './scene.js'

const COLUMNS = ['Container href', 'Name', 'Status', 'Type', 'Consumers'].map(name => `-c '${name}'`).join(' ')

/** secret container create, get, list and delete. */
export async function containers(t: Test, { member, stranger }: Scene): Promise<void> {
  const create = (options: string) => member.show(`secret container create ${COLUMNS} ${options}`)
  const secret = (name: string) => madeBy(member, `secret store --name ${name} --payload ${name}`)
  const [key, certificate, chain, phrase] = [
    await secret('key'),
    await secret('certificate'),
    await secret('chain'),
    await secret('phrase'),
  ]

  await t.test('generic', async t => {
    const made = await create(`--name box --secret one=${key} --secret two=${phrase}`)
    t.match(made, { 'Container href': hrefOf('containers'), Name: 'box', Type: 'generic' })
    const record = await member.show(`secret container get ${made['Container href']}`)
    t.match(record.Created, TIME)
    t.same(record, {
      'Container href': made['Container href'],
      Name: 'box',
      Created: record.Created,
      Status: 'ACTIVE',
      Type: 'generic',
      Secrets: `one=${key}\ntwo=${phrase}`,
      Consumers: null,
    })
  })

  await t.test('certificate and rsa', async t => {
    const whole = await create(
      `--name whole --type certificate --secret certificate=${certificate} --secret private_key=${key} ` +
        `--secret private_key_passphrase=${phrase} --secret intermediates=${chain}`,
    )
    const parts = `${COLUMNS} -c 'Private Key' -c 'PK Passphrase'`
    t.same(
      await member.show(`secret container get ${parts} -c Certificate -c Intermediates ${whole['Container href']}`),
      {
        ...{ 'Container href': whole['Container href'], Name: 'whole', Status: 'ACTIVE', Type: 'certificate' },
        ...{
          Certificate: certificate,
          Intermediates: chain,
          'Private Key': key,
          'PK Passphrase': phrase,
          Consumers: null,
        },
      },
    )
    const pair = await create(
      `--name pair --type rsa --secret public_key=${certificate} --secret private_key=${key} ` +
        `--secret private_key_passphrase=${phrase}`,
    )
    t.same(await member.show(`secret container get ${parts} -c 'Public Key' ${pair['Container href']}`), {
      ...{ 'Container href': pair['Container href'], Name: 'pair', Status: 'ACTIVE', Type: 'rsa' },
      ...{ 'Public Key': certificate, 'Private Key': key, 'PK Passphrase': phrase, Consumers: null },
    })
    t.match(await member.run(`secret container get ${pair['Container href']}`), {
      stdout: /Public Key .*\/v1\/secrets\//,
    })
  })

  await t.test('list', async t => {
    const listed = async (options: string) => namesOf(await member.list(`secret container list ${options}`))
    t.same(await listed(''), ['box', 'whole', 'pair'])
    t.same(await listed('--type certificate'), ['whole'])
    t.same(await listed('--type generic --name b%'), ['box'])
    t.same(await listed('--name pair'), ['pair'])
    t.same(await listed('--limit 1 --offset 1'), ['whole'])
    t.same(await listed('--type odd'), [])
    t.same(await stranger.list('secret container list'), [], 'another project’s containers are not listed')
  })

  await t.test('a secret in a container cannot be deleted', async t => {
    t.match(await member.refused(`secret delete ${key}`), {
      status: 1,
      stderr: /^Conflict: A container refers.*delete_referenced_secrets/m,
    })
    t.equal((await member.show(`secret get ${key} --payload`)).Payload, 'key')
  })

  await t.test('refused requests and their messages', async t => {
    const theirs = await madeBy(stranger, 'secret store --name theirs --payload x')
    const refusals: [options: string, stderr: RegExp][] = [
      ['create', /Must supply at least one secret/],
      ['create --type odd --secret a=b', /Invalid container type/],
      ['create --secret a=b', /secret_refs could not be retrieved/],
      [`create --secret a=${key} --secret b=${key}`, /^Bad Request: .*same secret/m],
      [`create --secret a=http://127.0.0.1:1/v1/secrets/${MISSING}`, /^Bad Request: .*must begin with/m],
      [`create --secret a=${key.replace(/[^/]*$/, MISSING)}`, /^Not Found: Secret not found/m],
      [`create --secret a=${theirs}`, /^Not Found: Secret not found/m],
      [`create --type certificate --secret certificate=${certificate}`, /^Bad Request: .*"private_key"/m],
      [`create --type rsa --secret private_key=${key}`, /^Bad Request: .*"public_key"/m],
      ['get nonsense', /Container incorrectly specified/],
      [`get ${MISSING}`, /^Not Found: Container not found/m],
      ['delete nonsense', /Container incorrectly specified/],
      [`delete ${MISSING}`, /^Not Found: Container not found/m],
    ]
    for (const [options, stderr] of refusals) {
      t.match(await member.refused(`secret container ${options}`), { status: 1, stderr }, options.slice(0, 80))
    }
    await stranger.done(`secret delete ${theirs}`)
  })

  await t.test('delete', async t => {
    for (const { 'Container href': href } of await member.list('secret container list')) {
      await member.done(`secret container delete ${href}`)
      t.match(await member.refused(`secret container get ${href}`), { status: 1, stderr: /^Not Found: Container not/m })
      t.match(await member.refused(`secret container delete ${href}`), {
        status: 1,
        stderr: /^Not Found: Container not/m,
      })
    }
    for (const href of [key, certificate, chain, phrase]) await member.done(`secret delete ${href}`)
  })
}
