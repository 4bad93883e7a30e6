import t from 'tap'
import { changedSettings } from '../../../controller/config/in-effect.js'

const changed = (text: string, environment: NodeJS.ProcessEnv = {}) =>
  changedSettings(text, environment, 'krater.yaml').map(({ setting, value, source }) => [setting.name, value, source])

t.test('a setting that differs from its default is listed with its value and what sets it', async t => {
  t.same(changed(''), [])
  t.same(changed('identity: {port: 5000}', { KRATER_NETWORK_PORT: '9696', KRATER_REGION: '' }), [], 'as by default')
  t.same(
    changed('identity: {port: 5001}\nnetwork: {port: 1, driver: noop}\nload_balancer: {host_member_ports: [80]}', {
      KRATER_NETWORK_PORT: '9697',
      KRATER_KEY_MANAGER_HOST: '0.0.0.0',
    }),
    [
      ['identity.port', 5001, 'krater.yaml'],
      ['load_balancer.host_member_ports', [80], 'krater.yaml'],
      ['key_manager.host', '0.0.0.0', 'KRATER_KEY_MANAGER_HOST'],
      ['network.port', 9697, 'KRATER_NETWORK_PORT'],
      ['network.driver', 'noop', 'krater.yaml'],
    ],
  )
})
