import type { Test } from 'tap'
import { FAR, FAR_GIVEN, finished, hrefOf, MISSING, madeBy, type Scene, TIME } from './scene.js'

/** secret order create, get, list and delete of keys and key pairs. */
export async function orders(t: Test, { member }: Scene): Promise<void> {
  const order = (options: string) => madeBy(member, `secret order create ${options}`)

  await t.test('a key', async t => {
    const type = '--payload-content-type application/octet-stream'
    const about = '--algorithm aes --bit-length 192 --mode gcm'
    const href = await order(`key --name key ${about} ${type} --expiration ${FAR_GIVEN}`)
    t.match(href, hrefOf('orders'))
    const done = await finished(member, href)
    t.match(done, { Created: TIME, 'Secret href': hrefOf('secrets') })
    t.same(done, {
      'Order href': href,
      Type: 'Key',
      'Container href': 'N/A',
      'Secret href': done['Secret href'],
      Created: done.Created,
      Status: 'ACTIVE',
      'Error code': null,
      'Error message': null,
    })
    t.same(await member.list('secret order list'), [done], 'the list shows the same order')
    t.match(await member.show(`secret get ${done['Secret href']}`), {
      Name: 'key',
      Status: 'ACTIVE',
      'Content types': { default: 'application/octet-stream' },
      Algorithm: 'aes',
      'Bit length': 192,
      'Secret type': 'symmetric',
      Mode: 'gcm',
      Expiration: FAR,
    })
    await member.done(`secret order delete ${href}`)
    t.match(await member.show(`secret get ${done['Secret href']}`), { Name: 'key' }, 'the secret stays')
    await member.done(`secret delete ${done['Secret href']}`)
  })

  await t.test('key pairs', async t => {
    for (const [algorithm, bits, type] of [
      ['rsa', 2048, 'rsa'],
      ['ec', 521, 'generic'],
    ] as const) {
      const done = await finished(
        member,
        await order(`asymmetric --name pair --algorithm ${algorithm} --bit-length ${bits}`),
      )
      t.match(done, {
        Type: 'Asymmetric',
        Status: 'ACTIVE',
        'Secret href': 'N/A',
        'Container href': hrefOf('containers'),
      })
      const [container] = await member.list(`secret container list --type ${type} --name pair`)
      t.match(container, { 'Container href': done['Container href'], Name: 'pair', Type: type })
      const refs = new Map(
        String(container!.Secrets)
          .split('\n')
          .map(line => line.split('=') as [string, string]),
      )
      t.same([...refs.keys()].sort(), ['private_key', 'public_key'])
      const publicKey = await member.show(`secret get ${refs.get('public_key')}`)
      t.match(publicKey, { 'Secret type': 'public', Algorithm: algorithm, 'Bit length': bits })
      t.match(
        (await member.show(`secret get ${refs.get('private_key')} --payload`)).Payload,
        /^-----BEGIN PRIVATE KEY-----/,
      )
      await member.done(`secret container delete ${done['Container href']}`)
      for (const href of refs.values()) await member.done(`secret delete ${href}`)
      await member.done(`secret order delete ${done['Order href']}`)
    }
  })

  await t.test('a failed order shows its reason', async t => {
    const done = await finished(member, await order('key --name odd --algorithm rot13'))
    t.match(done, {
      Status: 'ERROR',
      'Secret href': null,
      'Error code': '400',
      'Error message': /"rot13".*supported are/,
    })
    t.same(await member.list('secret order list'), [done])
    const long = await finished(member, await order('key --algorithm aes --bit-length 512'))
    t.match(long, { Status: 'ERROR', 'Error message': /512/ })
    const crossed = await finished(member, await order('asymmetric --algorithm aes'))
    t.match(crossed, { Status: 'ERROR', 'Error code': '400', 'Container href': null })
    t.same(await member.list('secret order list --limit 1 --offset 1'), [long])
    for (const { 'Order href': href } of await member.list('secret order list')) {
      await member.done(`secret order delete ${href}`)
    }
    t.same(await member.list('secret order list'), [])
    t.match(await member.run('secret order list'), { status: 0, stdout: /^\s*$/ })
  })

  await t.test('refused requests and their messages', async t => {
    const refusals: [options: string, stderr: RegExp][] = [
      ['create odd', /Unknown Order type "odd"/],
      ['create key --bit-length 100', /^Bad Request: .*multiple of 8/m],
      ['create key --bit-length 0', /^Bad Request: .*"bit_length"/m],
      ['create key --payload-content-type text/html', /^Bad Request: .*text\/html/m],
      ['create key --expiration 2001-01-01T00:00:00', /^Bad Request: .*expiration/m],
      [`create key --name ${'n'.repeat(256)}`, /^Bad Request: .*"name"/m],
      ['get nonsense', /Order incorrectly specified/],
      [`get ${MISSING}`, /^Not Found: Order not found/m],
      ['delete nonsense', /Order incorrectly specified/],
      [`delete ${MISSING}`, /^Not Found: Order not found/m],
    ]
    for (const [options, stderr] of refusals) {
      t.match(await member.refused(`secret order ${options}`), { status: 1, stderr }, options.slice(0, 80))
    }
  })
}
