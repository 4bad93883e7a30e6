import t from 'tap'
import { progressFindings } from '../../../controller/cli/commands/doctor/networks/ovn.js'

const chassis = (name: string, change: number) => ({ name, hostname: `${name}.example`, change })

t.test('the doctor says who holds up changes in OVN', async t => {
  t.same(progressFindings({ change: 7, computed: 7, chassis: [chassis('one', 7), chassis('two', 7)] }), [])
  t.match(
    progressFindings({ change: 7, computed: 7, chassis: [chassis('one', 7), chassis('two', 5)] }),
    [
      {
        state: 'note',
        text: 'the hypervisor two.example (two) has the change 5; the last one is 7',
        remedy: /ovn-controller/,
      },
    ],
    'a hypervisor',
  )
  const late = { change: 7, computed: 6, chassis: [chassis('one', 6)] }
  const northd = {
    state: 'note',
    text: 'ovn-northd has worked out the change 6; the last one is 7',
    remedy: /ovn-northd/,
  }
  t.match(progressFindings(late), [northd])
  t.equal(progressFindings(late).length, 1, 'northd, and no hypervisor that has all it could know')
  t.match(progressFindings({ ...late, chassis: [chassis('one', 5)] }), [
    northd,
    { text: /one.example .*; the last one is 6$/ },
  ])
  t.match(progressFindings({ change: 7, computed: 7, chassis: [] }), [
    { state: 'fault', text: 'no hypervisor is there: nothing is switched', remedy: /start ovn-controller/ },
  ])
})
