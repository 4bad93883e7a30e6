import type { Test } from 'tap'
import type { Scene } from './scene.js'

const DEFAULTS = {
  load_balancer: 100,
  listener: 500,
  pool: 500,
  health_monitor: 500,
  member: 5000,
  l7policy: 1000,
  l7rule: 5000,
}

/** loadbalancer quota defaults show, set, show, list, unset, reset. */
export async function quotas(t: Test, { member, admin }: Scene): Promise<void> {
  const projects = await admin.list('project list')
  const demo = projects.find(({ Name }) => Name === 'demo')?.ID
  const create = 'loadbalancer create --provider noop_driver --vip-subnet-id s'

  await t.test('defaults show', async t => {
    t.same(await admin.show('loadbalancer quota defaults show'), DEFAULTS)
    t.same(await member.show('loadbalancer quota defaults show'), DEFAULTS)
  })

  await t.test('set, show and list', async t => {
    const limits = '--healthmonitor 1 --listener 2 --loadbalancer 1 --member 4 --pool 5 --l7policy 6 --l7rule 7'
    const expected = {
      load_balancer: 1,
      listener: 2,
      pool: 5,
      health_monitor: 1,
      member: 4,
      l7policy: 6,
      l7rule: 7,
    }
    t.same(await admin.show(`loadbalancer quota set ${limits} demo`), expected)
    t.same(await admin.show('loadbalancer quota show demo'), expected)
    t.same(await member.show(`loadbalancer quota show ${demo}`), expected, 'a project may see its own limits')
    t.match(
      (await admin.list('loadbalancer quota list')).find(({ project_id: id }) => id === demo),
      expected,
    )
    t.match(await admin.list('loadbalancer quota list --project demo'), [{ project_id: demo, ...expected }])
    t.equal((await admin.list('loadbalancer quota list --project demo')).length, 1)
    t.match(await member.list('loadbalancer quota list'), [{ project_id: demo, ...expected }])
  })

  await t.test('a create over the quota is refused', async t => {
    await member.done(`${create} --name only --wait`)
    t.match(await member.refused(`${create} --name more`), {
      status: 1,
      stderr: /Quota has been met for resources: Load Balancer \(HTTP 403\)/,
    })
    const pool = 'loadbalancer pool create --protocol HTTP --lb-algorithm ROUND_ROBIN --loadbalancer only --wait'
    for (const name of ['first', 'second']) await member.done(`${pool} --name ${name}`)
    const monitor = 'loadbalancer healthmonitor create --type TCP --delay 5 --timeout 4 --max-retries 3 --wait'
    await member.done(`${monitor} first`)
    t.match(await member.refused(`${monitor} second`), {
      status: 1,
      stderr: /Quota has been met for resources: Health Monitor \(HTTP 403\)/,
    })
  })

  await t.test('unset and reset', async t => {
    await admin.done('loadbalancer quota unset --loadbalancer --healthmonitor demo')
    t.match(await admin.show('loadbalancer quota show demo'), { load_balancer: 100, health_monitor: 500, listener: 2 })
    await member.done(`${create} --name more --wait`)
    await admin.done('loadbalancer quota unset --listener --pool --member --l7policy --l7rule demo')
    t.same(await admin.show('loadbalancer quota show demo'), DEFAULTS)
    await admin.done('loadbalancer quota set --pool 0 demo')
    await admin.done('loadbalancer quota reset demo')
    t.same(await admin.show('loadbalancer quota show demo'), DEFAULTS)
  })

  await t.test('refused requests and their messages', async t => {
    const other = projects.find(({ Name }) => Name === 'admin')?.ID
    t.match(await admin.refused('loadbalancer quota set demo'), { status: 1, stderr: /Requires at least one of/ })
    t.match(await admin.refused('loadbalancer quota set --pool -2 demo'), { status: 1, stderr: /pool.*HTTP 400/ })
    t.match(await admin.refused('loadbalancer quota set --pool many demo'), { status: 1, stderr: /invalid literal/ })
    t.match(await admin.refused('loadbalancer quota show nowhere'), { status: 1, stderr: /No project/ })
    t.match(await member.refused(`loadbalancer quota set --pool 5 ${demo}`), { status: 1, stderr: /HTTP 403/ })
    t.match(await member.refused(`loadbalancer quota reset ${demo}`), { status: 1, stderr: /HTTP 403/ })
    t.match(await member.refused(`loadbalancer quota show ${other}`), { status: 1, stderr: /HTTP 403/ })
  })
  for (const name of ['only', 'more']) await member.done(`loadbalancer delete --cascade --wait ${name}`)
}
