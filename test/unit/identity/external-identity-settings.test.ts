import t from 'tap'
import { catalogAdvice } from '../../../controller/cli/wiring/keystone-catalog.js'
import { serviceUrls } from '../../../controller/cli/wiring/service-urls.js'
import { parseConfiguration } from '../../../controller/config/load.js'
import { settings } from '../../../controller/config/settings.js'
import { ConfigurationError } from '../../../controller/options/configuration-error.js'

t.test('incomplete or contradictory settings are refused with a message', async t => {
  const refusal = (identity: string, environment: NodeJS.ProcessEnv = {}) => {
    try {
      parseConfiguration(`identity: {${identity}}`, environment)
      return ''
    } catch (error) {
      if (!(error instanceof ConfigurationError)) throw error
      return error.message
    }
  }
  const url = 'external_url: "https://k:5000"'
  t.equal(refusal(`${url}, username: u, password: p`), '')
  t.equal(refusal(`${url}, application_credential_id: i, application_credential_secret: s`), '')
  t.match(refusal(url), /^identity\.username is not set: it must be the user by which Krater validates tokens/)
  t.equal(refusal(`${url}, username: u`), 'identity.password is not set: it must be given with identity.username.')
  t.equal(
    refusal(`${url}, application_credential_id: i`),
    'identity.application_credential_secret is not set: it must be given with identity.application_credential_id.',
  )
  t.match(
    refusal(`${url}, username: u, password: p, application_credential_id: i, application_credential_secret: s`),
    /^identity\.username: "u" .* it must be left out, since identity\.application_credential_id is set\.$/,
  )
  t.equal(
    refusal('password: hunter2'),
    'identity.external_url is not set: it must be the URL of a Keystone, since identity.password is set.',
  )
  t.match(refusal('external_url: nowhere'), /^identity\.external_url: "nowhere"/)
  t.match(refusal('external_url: "ftp://k"'), /^identity\.external_url: "ftp:\/\/k"/)
  t.match(
    refusal(`${url}, username: u, password: p, client_key_file: /k`),
    /^identity\.client_certificate_file is not set/,
  )
  t.match(
    refusal('external_url: "http://k", username: u, password: p, ca_file: /ca'),
    /^identity\.ca_file: "\/ca" .* left out, since identity\.external_url is not https\.$/,
  )
  const hidden = refusal(`${url}, username: u, password: [hunter2]`)
  t.match(hidden, /^identity\.password: its value \(not shown\)/)
  t.notMatch(hidden, /hunter2/)
  t.same(
    settings.filter(({ path, secret }) => path[0] === 'identity' && secret).map(({ name }) => name),
    ['identity.password', 'identity.application_credential_secret'],
  )
})

t.test('clients learn the public address of Keystone', async t => {
  const told = (identity: string) =>
    serviceUrls(parseConfiguration(`identity: {username: u, password: p, ${identity}}`, {})).identity
  t.equal(told('external_url: "https://k:5000"'), 'https://k:5000/v3')
  t.equal(told('external_url: "https://k/identity/v3/"'), 'https://k/identity/v3')
  t.equal(told('external_url: "https://10.0.0.1", public_url: "https://k/v3"'), 'https://k/v3')
})

t.test('the advice lists the endpoints that the catalogue lacks', async t => {
  const config = parseConfiguration('region: R\nload_balancer: {public_url: "https://lb/"}', {})
  const endpoint = (type: string, url: string, region_id = 'R') => ({
    type,
    endpoints: [{ interface: 'public', region_id, url }],
  })
  t.same(catalogAdvice(config, []).slice(0, 4), [
    'openstack service create --name octavia load-balancer',
    'openstack endpoint create --region R load-balancer public https://lb/',
    'openstack endpoint create --region R load-balancer internal https://lb/',
    'openstack endpoint create --region R load-balancer admin https://lb/',
  ])
  const good = [
    endpoint('load-balancer', 'https://lb'),
    endpoint('key-manager', 'http://127.0.0.1:9311'),
    endpoint('network', 'http://127.0.0.1:9696'),
  ]
  t.same(catalogAdvice(config, good), [])
  t.same(catalogAdvice(config, [...good.slice(1), endpoint('load-balancer', 'https://other')]), [
    'The catalogue points load-balancer clients to https://other, but Krater serves it at https://lb/. Change the endpoint, or set load_balancer.public_url.',
  ])
  t.equal(catalogAdvice(config, [...good.slice(1), endpoint('load-balancer', 'https://lb', 'Other')]).length, 3)
})
