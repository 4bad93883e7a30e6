import type { Test } from 'tap'
import { MISSING, madeBy, type Scene, TIME } from './scene.js'

/** acl get, submit, delete, user add and user remove, and their effect on another project's user. */
export async function acls(t: Test, { member, stranger, strangerId }: Scene): Promise<void> {
  const secret = await madeBy(member, 'secret store --name shared --payload hello')
  const show = `secret container create -c 'Container href' -c Name --name shared --secret one=${secret}`
  const container = String((await member.show(show))['Container href'])
  const users = (listed: readonly Record<string, unknown>[]) => [listed[0]?.Users].flat().sort()
  const refusedToStranger = { status: 1, stderr: /^Forbidden: /m }

  for (const [word, href, get, read] of [
    ['Secret', secret, `secret get ${secret}`, `secret get ${secret} --payload`],
    ['Container', container, `secret container get ${container}`, `secret container get ${container}`],
  ] as const) {
    await t.test(`the ACL of a ${word.toLowerCase()}`, async t => {
      const none = {
        ...{ 'Operation Type': 'read', 'Project Access': true, Users: [], Created: null, Updated: null },
        [`${word} ACL Ref`]: `${href}/acl`,
      }
      t.same(await member.list(`acl get ${href}`), [none])
      for (const line of [get, read]) t.match(await stranger.refused(line), refusedToStranger)

      const [given] = await member.list(
        `acl submit --user ${strangerId} --user u1 --project-access --operation-type read ${href}`,
      )
      t.match(given, { ...none, Users: [strangerId, 'u1'].sort(), Created: TIME, Updated: TIME })
      t.same(await member.list(`acl get ${href}`), [given])
      for (const line of [get, read]) await stranger.done(line)
      t.match(
        await stranger.refused(`${get.replace(' get ', ' delete ')}`),
        refusedToStranger,
        'only reading is allowed',
      )
      t.match(await stranger.refused(`acl get ${href}`), refusedToStranger)
      t.match(await stranger.refused(`acl submit --user ${strangerId} ${href}`), refusedToStranger)

      const removed = await member.list(
        `acl user remove --user ${strangerId} --user nobody --no-project-access --operation-type read ${href}`,
      )
      t.match(removed, [{ 'Project Access': false, Users: ['u1'] }])
      t.match(await stranger.refused(read), refusedToStranger, 'access ends with the next request')
      t.match(await member.show(`${get} -c Name`), { Name: 'shared' }, 'the creator still has access')
      t.match(await member.list(`acl user remove --project-access ${href}`), [
        { 'Project Access': true, Users: ['u1'] },
      ])

      const added = await member.list(
        `acl user add --user ${strangerId} --operation-type read --no-project-access ${href}`,
      )
      t.same(users(added), [strangerId, 'u1'].sort())
      await stranger.done(read)
      t.match(await member.list(`acl user add --project-access ${href}`), [{ 'Project Access': true }])
      t.match(await member.list(`acl submit --no-project-access ${href}`), [{ 'Project Access': false, Users: [] }])

      await member.done(`acl delete ${href}`)
      t.same(await member.list(`acl get ${href}`), [none])
      await member.done(`acl delete ${href}`)
      t.match(await stranger.refused(read), refusedToStranger)
    })
  }

  await t.test('refused requests and their messages', async t => {
    const refusals: [line: string, stderr: RegExp][] = [
      ['get nonsense', /URI is not specified/],
      [`get ${secret}/acl`, /ACL URI provided/],
      [`get ${secret.replace(/[^/]*$/, MISSING)}`, /^Not Found: Secret not found/m],
      [`submit --user u1 ${container.replace(/[^/]*$/, MISSING)}`, /^Not Found: Container not found/m],
      [`submit --user ${'u'.repeat(256)} ${secret}`, /^Bad Request: .*at most 255/m],
      [`user add --user u1 ${secret.replace(/[^/]*$/, MISSING)}`, /^Not Found: Secret not found/m],
      [`user remove --user u1 ${secret.replace(/[^/]*$/, MISSING)}`, /^Not Found: Secret not found/m],
      [`delete ${secret.replace(/[^/]*$/, MISSING)}`, /^Not Found: Secret not found/m],
    ]
    for (const [line, stderr] of refusals) {
      t.match(await member.refused(`acl ${line}`), { status: 1, stderr }, line.slice(0, 80))
    }
    t.match(await member.refused(`acl submit --operation-type write ${secret}`), {
      status: 2,
      stderr: /invalid choice/,
    })
  })

  await member.done(`secret container delete ${container}`)
  await member.done(`secret delete ${secret}`)
}
