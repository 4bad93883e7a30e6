import t from 'tap'
import { codeSamples, type Example } from '../../../controller/api/description/examples.js'

const answer = { type: 'object' }

const samplesOf = (
  method: 'GET' | 'HEAD' | 'POST' | 'DELETE',
  path: string,
  example: Example = {},
  more: object = {},
) =>
  codeSamples({ method, ...more }, path, {
    urlVariable: 'URL',
    segments: { tag: 'blue' },
    operations: { [`${method} ${path.replace(/:(\w+)/g, '{$1}')}`]: example },
  })

const curlOf = (...args: Parameters<typeof samplesOf>): string | undefined => samplesOf(...args)[0]?.source

t.test('a read sends the token', async t => {
  t.equal(curlOf('GET', '/pools', {}, { answer }), 'curl "$URL/pools" \\\n  -H "X-Auth-Token: $TOKEN"')
  t.equal(curlOf('GET', '/pools', {}, { answer, open: true }), 'curl "$URL/pools"', 'unless the route is open')
})

t.test('an answer without a body shows its status', async t => {
  t.match(curlOf('DELETE', '/pools/:id'), /^curl -i -X DELETE "\$URL\/pools\/\$POOL_ID"/)
  t.match(curlOf('HEAD', '/pools'), /^curl -I "/)
})

t.test('segments of the path become variables named after what they identify', async t => {
  const cases = {
    '/v1/secrets/:id/payload': '/v1/secrets/$SECRET_ID/payload',
    '/pools/:pool/members/:id': '/pools/$POOL_ID/members/$MEMBER_ID',
    '/l7policies/:id': '/l7policies/$L7POLICY_ID',
    '/security-groups/:id': '/security-groups/$SECURITY_GROUP_ID',
    '/groups/:group_id/users/:user_id': '/groups/$GROUP_ID/users/$USER_ID',
    '/amphorae/:id/tags/:tag': '/amphorae/$AMPHORA_ID/tags/blue',
  }
  for (const [path, shown] of Object.entries(cases)) t.match(curlOf('GET', path), `"$URL${shown}"`)
  t.match(curlOf('GET', '/crl/:id', { segments: { id: '$CA_ID' } }), '/crl/$CA_ID"', 'an example may name its own')
})

t.test('bodies, queries and headers are sent as the example says', async t => {
  t.equal(
    curlOf('POST', '/pools', { json: { pool: { name: 'web' } } }, { answer }),
    `curl -X POST "$URL/pools" \\
  -H "X-Auth-Token: $TOKEN" \\
  --json @- <<END
{
  "pool": {
    "name": "web"
  }
}
END`,
  )
  t.match(
    curlOf('GET', '/pools', { query: 'limit=1', headers: { Accept: 'text/plain' } }),
    /pools\?limit=1" \\\n.*\\\n {2}-H "Accept: text\/plain"$/,
  )
  t.match(
    curlOf('POST', '/pools', { text: { type: 'text/plain', body: 'hello' } }),
    /-H "Content-Type: text\/plain" \\\n {2}-d 'hello'$/,
  )
})

t.test('a command of the client is shown after curl, broken before options', async t => {
  t.strictSame(samplesOf('GET', '/pools', { command: 'pool list' })[1], {
    lang: 'Shell',
    label: 'openstack',
    source: 'openstack pool list',
  })
  const long = `pool create --name web --description '${'x'.repeat(30)}' --protocol HTTP`
  const [, shown] = samplesOf('GET', '/pools', { command: long })
  t.equal(shown?.source.replaceAll(' \\\n  ', ' '), `openstack ${long}`, 'the same words')
  t.equal(shown?.source.split('\n').length, 2)
})
