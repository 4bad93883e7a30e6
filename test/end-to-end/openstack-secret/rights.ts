import type { Test } from 'tap'
import { FAR_GIVEN, idOf, madeBy, type Scene } from './scene.js'

/** Answers to users of other projects, an administrator's rights, and refusals by quotas. */
export async function rights(
  t: Test,
  { member, stranger, admin, administrator, strangerProjectId }: Scene,
): Promise<void> {
  const url = administrator.urlOf('key-manager')
  const quotas = (path: string, method = 'GET', body?: unknown) =>
    administrator.request('key-manager', method, `/v1${path}`, body)
  const secret = await madeBy(member, 'secret store --name private --payload hello')
  const order = await madeBy(member, `secret order create key --name private --expiration ${FAR_GIVEN}`)

  await t.test('another project has no access', async t => {
    t.same(await stranger.list('secret list'), [])
    t.same(await stranger.list('secret order list'), [])
    const refused = { status: 1, stdout: '', stderr: /^Forbidden: /m }
    for (const line of [`get ${secret}`, `get ${secret} --payload`, `delete ${secret}`, `update ${secret} x`]) {
      t.match(await stranger.refused(`secret ${line}`), refused, line)
    }
    for (const line of [`acl get ${secret}`, `acl submit --user u ${secret}`, `acl delete ${secret}`]) {
      t.match(await stranger.refused(line), refused, line)
    }
    for (const word of ['get', 'delete']) {
      t.match(await stranger.refused(`secret order ${word} ${order}`), { status: 1, stderr: /^Not Found: Order/m })
    }
  })

  await t.test('an administrator sees another project’s secret, but not its payload', async t => {
    t.match(await admin.show(`secret get ${secret}`), { Name: 'private' })
    t.match(await admin.refused(`secret get ${secret} --payload`), { status: 1, stderr: /^Forbidden: /m })
    const own = await madeBy(admin, 'secret store --name own --payload x')
    t.match(await admin.list('secret list'), [{ 'Secret href': own, Name: 'own' }])
    await admin.done(`secret delete ${own}`)
  })

  await t.test('quotas', async t => {
    const limits = { secrets: 1, orders: 0, containers: 0, consumers: -1, cas: 0 }
    t.equal(await quotas(`/project-quotas/${strangerProjectId}`, 'PUT', { project_quotas: limits }), undefined)
    t.same(await quotas(`/project-quotas/${strangerProjectId}`), { project_quotas: limits })
    t.match(await quotas('/project-quotas'), { project_quotas: [{ project_id: strangerProjectId }], total: 1 })
    const held = await madeBy(stranger, 'secret store --name one --payload x')
    const reached = (kind: string) => ({ status: 1, stderr: new RegExp(`^Forbidden: .*${kind}`, 'm') })
    t.match(await stranger.refused('secret store --name two --payload x'), reached('secrets'))
    t.match(await stranger.refused('secret order create key'), reached('orders'))
    t.match(await stranger.refused(`secret container create --secret a=${held}`), reached('containers'))
    await stranger.done(`secret delete ${held}`)
    await stranger.done(`secret delete ${await madeBy(stranger, 'secret store --name again --payload x')}`)
    await quotas(`/project-quotas/${strangerProjectId}`, 'DELETE')
    await t.rejects(quotas(`/project-quotas/${strangerProjectId}`, 'DELETE'), /refused \(404\)/)
  })

  await t.test('tokens', async t => {
    const status = async (token: string | null) => {
      const headers: Record<string, string> = token === null ? {} : { 'X-Auth-Token': token }
      const answer = await fetch(`${url}/v1/secrets`, { headers })
      return [answer.status, await answer.json()]
    }
    const unauthorized = { code: 401, title: 'Unauthorized', error: { code: 401, title: 'Unauthorized' } }
    t.match(await status(null), [401, unauthorized])
    t.match(await status('nonsense'), [401, unauthorized])
    const scoped = await fetch(`${administrator.urlOf('identity')}/auth/tokens`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({
        auth: {
          identity: { methods: ['token'], token: { id: administrator.token } },
          scope: { system: { all: true } },
        },
      }),
    })
    t.equal(scoped.status, 201)
    t.match(
      await status(scoped.headers.get('X-Subject-Token')),
      [403, { code: 403, title: 'Forbidden' }],
      'a system-scoped token',
    )
  })

  await member.done(`secret order delete ${idOf(order)}`)
  for (const { 'Secret href': href } of await member.list('secret list --name private'))
    await member.done(`secret delete ${href}`)
}
