// SPDX-License-Identifier: Apache-2.0

package main

type kind uint8

const (
	paragraph kind = iota
	title
	section
	topic
	bullet
	table
)

type block struct {
	kind kind
	text string
	rows [][]string
}

const documentTitle = "The Ferry of Lindholm: A Year in Numbers"

// report is an invented annual report: chapters of blocks, each chapter on a
// new page. Place, people and numbers are invented.
var report = [][]block{
	{
		{kind: title, text: documentTitle},
		{text: "The ferry of Lindholm crosses the sound between the village and the railway pier. It has done so for ninety years, and for the first time somebody has written down how often, with whom, and at what price. This report is for the council, which pays for the boat, and for everybody who has ever waited for it in the rain."},
		{kind: section, text: "Summary"},
		{text: "The boat made 9,412 crossings and carried 187,306 people. It was on time more often than in any year since the new engine came. The cost of a crossing fell for the second time, because the winter was mild and the hull did not need paint."},
		{text: "Three things should be decided before the next season:"},
		{kind: bullet, text: "whether the boat sails until midnight on Fridays in summer,"},
		{kind: bullet, text: "whether bicycles go on travelling free of charge, which costs little and fills the deck on Sundays,"},
		{kind: bullet, text: "who keeps the spare engine, now that the boathouse has been sold."},
		{text: "The council has asked for few pages. What is left out here stands in the log of the boat, which lies open in the ticket office and may be read by anyone."},
	},
	{
		{kind: section, text: "Crossings and Passengers"},
		{text: "A crossing is counted when the boat has left one pier and tied up at the other. Trips without passengers count as well: the boat has to be where the next passengers are, and the fuel is burnt all the same."},
		{kind: table, rows: [][]string{
			{"Quarter", "Crossings", "Passengers", "On time"},
			{"January to March", "1,846", "24,118", "91 percent"},
			{"April to June", "2,507", "51,940", "96 percent"},
			{"July to September", "2,988", "82,377", "94 percent"},
			{"October to December", "2,071", "28,871", "89 percent"},
		}},
		{text: "The summer was the busiest on record. On the Sunday of the regatta the boat made forty crossings, six more than the timetable has, and nobody was left on the pier at night."},
		{kind: topic, text: "Who Travels"},
		{text: "Two thirds of all passengers hold a season ticket and live on one side of the sound or the other. Visitors come between June and August, and most of them come back the same day. Pupils travel free on school days; they are counted, and they are the only group that has grown in every quarter."},
		{kind: topic, text: "Why the Boat Was Late"},
		{text: "Of 611 late crossings, fog caused 240, the train 198 and the crowd on the pier 121. The engine caused nine. The boat waits up to ten minutes for a late train, by order of the council; passengers who are already on board rarely agree with that order, and passengers of the train always do."},
	},
	{
		{kind: section, text: "The Boat"},
		{text: "The boat is forty years old and in good health. The diver found the hull sound in May. The engine has run 21,000 hours since it was built in, which is half of what its maker promises."},
		{kind: topic, text: "Work Done"},
		{kind: bullet, text: "New fenders on the side of the railway pier, where the current presses the boat against the stones."},
		{kind: bullet, text: "A ramp that a wheelchair can use at every tide, not only at high water."},
		{kind: bullet, text: "Lamps that need a fifth of the power of the old ones. The sea gulls have not complained."},
		{kind: topic, text: "Work That Waits"},
		{text: "The wheelhouse leaks above the chart table. The repair needs four dry days and the boat out of the water, so it is planned for the week after the autumn holidays. Until then the charts lie under oilcloth, as they did in the days of the founder."},
		{kind: section, text: "Money"},
		{text: "Tickets paid for sixty-one percent of the cost; the council paid the rest. A crossing cost 38 crowns, after 41 the year before and 44 in the year before that."},
		{kind: table, rows: [][]string{
			{"Item", "Crowns"},
			{"Fuel", "118,400"},
			{"Wages", "196,750"},
			{"Repairs", "31,200"},
			{"Insurance and fees", "11,306"},
		}},
	},
	{
		{kind: section, text: "Outlook"},
		{text: "The railway has announced a train every half hour from next spring. The boat can follow that timetable with one more deckhand and no more fuel, since today it waits at the pier for a good part of every hour."},
		{text: "An electric boat has been looked at again. It would need a stronger cable to the village pier, and the cable costs more than the boat. The question will come back when the road to the lighthouse is dug up, for then the trench is free."},
		{kind: section, text: "Method"},
		{text: "All numbers come from the log. Each crossing is one line: the time of leaving, the time of tying up, the passengers, and a remark where there was something to remark. A second person copied the lines of every tenth day from the paper into a table of their own; the two tables differed in 14 places, of which 11 were the fault of the copy."},
		{text: "Passengers are counted by hand with a clicker. Infants in arms are not counted. Dogs are not counted either, although one of them made the crossing alone on 41 days, was never without a ticket, and always got off at the right pier."},
	},
}
