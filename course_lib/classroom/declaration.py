"""One text in eight languages: the first two sentences of the Universal Declaration of Human Rights.

Article 1 in the translations that the United Nations publish, which are free to use. `FIRST` is for measuring what a
sentence costs in each language; `SECOND` has no English and is for training a vocabulary on the other seven.
"""

from __future__ import annotations

FIRST = {
    "English": "All human beings are born free and equal in dignity and rights.",
    "German": "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "Russian": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "Greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "Arabic": "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق.",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "Chinese": "人人生而自由，在尊严和权利上一律平等。",
    "Japanese": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
}
SECOND = {
    "German": "Sie sind mit Vernunft und Gewissen begabt und sollen einander im Geist der Brüderlichkeit begegnen.",
    "Russian": "Они наделены разумом и совестью и должны поступать в отношении друг друга в духе братства.",
    "Greek": "Είναι προικισμένοι με λογική και συνείδηση, και οφείλουν να συμπεριφέρονται μεταξύ τους με πνεύμα "
             "αδελφοσύνης.",
    "Arabic": "وقد وهبوا عقلاً وضميراً وعليهم أن يعامل بعضهم بعضاً بروح الإخاء.",
    "Hindi": "उन्हें बुद्धि और अन्तरात्मा की देन प्राप्त है और परस्पर उन्हें भाईचारे के भाव से बर्ताव करना चाहिए।",
    "Chinese": "他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    "Japanese": "人間は、理性と良心とを授けられており、互いに同胞の精神をもって行動しなければならない。",
}
