import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { changeSettings } from '../../../controller/cli/state-directory/change-settings.js'

t.test('settings are written to krater.yaml, whose other lines stay', async t => {
  const change = (text: string, ...changes: string[]) => {
    const directory = t.testdir({ 'krater.yaml': text })
    const names = changeSettings(directory, changes)
    return { names, text: readFileSync(join(directory, 'krater.yaml'), 'utf8') }
  }
  t.same(change('# mine\nload_balancer:\n  port: 9876 # here\n', 'load_balancer.port=9877', 'network.driver=noop'), {
    names: ['load_balancer.port', 'network.driver'],
    text: '# mine\nload_balancer:\n  port: 9877 # here\nnetwork:\n  driver: noop\n',
  })
  t.equal(change('# only\n', 'identity.port=1').text, '# only\n\nidentity:\n  port: 1\n')
  const list = change('', 'load_balancer.host_member_ports=8081,8082')
  t.equal(list.text, 'load_balancer:\n  host_member_ports:\n    - 8081\n    - 8082\n')
  t.equal(change('identity:\n  port: 1\n  host: ::1\n', 'identity.port=').text, 'identity:\n  host: ::1\n')
})

t.test('a wrong change is refused with the way out, and nothing is written', async t => {
  const text = 'identity: { port: 1 }\n'
  const refused = (changes: string[], message: RegExp, before = text) => {
    const directory = t.testdir({ 'krater.yaml': before })
    t.throws(() => changeSettings(directory, changes), { message }, changes.join())
    t.equal(readFileSync(join(directory, 'krater.yaml'), 'utf8'), before)
  }
  refused(['identity.port=2', 'identity.prt=3'], /no setting identity\.prt \(did you mean identity\.port\?\)/)
  refused(['identity.port=x'], /identity\.port: "x" .* it must be a number/)
  refused(['identity.port'], /Write NAME=VALUE/)
  refused(['database.url=postgres://u:p@h/d'], /is a secret/)
  refused(['identity.port=2'], /identity must be a group of settings/, 'identity: 5\n')
  refused(['identity.port=2'], /not valid YAML/, 'identity: [\n')
})
